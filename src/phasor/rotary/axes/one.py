from dataclasses import dataclass

from .base import Axes, register_axes


@register_axes
@dataclass(frozen=True)
class OneAxis(Axes):
    """Text: one coordinate rotates every pair (RoFormer, arXiv:2104.09864).

    >>> OneAxis().axis_of_pair(3)
    (0, 0, 0)
    """

    name = "one"

    @property
    def count(self) -> int:
        return 1

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        return (0,) * pairs
