"""Which position axis rotates which pair, and on which ladder of frequencies the pair sits."""

from abc import ABC, abstractmethod
from typing import ClassVar, TypeVar

from ...support.registry import register_scheme


class Axes(ABC):
    """A scheme for positions with one or more coordinates per token (time, height, width, …)."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of coordinates of a position."""

    @abstractmethod
    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        """``[pairs]``: the axis that rotates each pair."""

    def rung_of_pair(self, pairs: int) -> tuple[tuple[int, int], ...]:
        """``[pairs]`` of ``(i, n)``: the pair's frequency is rung ``i`` of a ladder of ``n``, ``base ** (-i / n)``."""
        return tuple((i, pairs) for i in range(pairs))

    def weights(self, pairs: int) -> tuple[tuple[float, ...], ...]:
        """``[count][pairs]``: the share of each axis in the angle of each pair; 1 for its own axis, else 0."""
        owner = self.axis_of_pair(pairs)
        return tuple(tuple(float(a == axis) for a in owner) for axis in range(self.count))


AXES: dict[str, type[Axes]] = {}
Scheme = TypeVar("Scheme", bound=Axes)


def register_axes(cls: type[Scheme]) -> type[Scheme]:
    """Register axes of your own, so that a `RotarySpec` can have them, and be written to data and read back.

    ``cls`` is a frozen dataclass that inherits from `Axes` and has a ``name``; it is returned, so this is a decorator,
    too. Raises ``ValueError`` for a name that is taken and for a class that is no such thing.

    >>> from phasor.axes import OneAxis
    >>> register_axes(OneAxis) is OneAxis  # what is registered already may be registered again
    True
    """
    register_scheme(AXES, "scheme of axes", cls, Axes)
    return cls
