from dataclasses import dataclass

from ...support.checks import listed, whole
from .base import Axes, register_axes


@register_axes
@dataclass(frozen=True)
class Listed(Axes):
    """Axis and rung of every pair, written out: for models whose order follows no other scheme.

    Pair ``p`` follows axis ``axis[p]``. ``rung[p] = (i, n)`` puts it on rung ``i`` of a ladder of ``n``,
    ``base ** (-i / n)``; without ``rung`` all pairs share one ladder, pair ``p`` on rung ``p``. ``axes`` is the number
    of coordinates of a position, by default up to the largest one in ``axis``.
    Source: Pixtral (even rungs follow the height, odd ones the width), ERNIE 4.5 VL, V-JEPA 2.

    >>> pixtral = Listed((0, 0, 1, 1), ((0, 4), (2, 4), (1, 4), (3, 4)))
    >>> pixtral.count, pixtral.axis_of_pair(4)
    (2, (0, 0, 1, 1))
    """

    axis: tuple[int, ...]
    rung: tuple[tuple[int, int], ...] | None = None
    axes: int = None  # type: ignore[assignment]  # replaced by the largest axis + 1
    name = "listed"

    def __post_init__(self) -> None:
        listed("axis", self.axis)
        object.__setattr__(self, "axis", tuple(self.axis))
        if not self.axis:
            raise ValueError("axis must have one value per pair, got ()")
        for p, axis in enumerate(self.axis):
            whole(f"axis[{p}]", axis, at_least=0)
        if self.axes is None:
            object.__setattr__(self, "axes", max(self.axis) + 1)
        whole("axes", self.axes, at_least=max(self.axis) + 1)
        if self.rung is not None:
            self._check_rungs(self.rung)

    def _check_rungs(self, rungs: tuple[tuple[int, int], ...]) -> None:
        listed("rung", rungs)
        for p, rung in enumerate(rungs):
            listed(f"rung[{p}]", rung)
            if len(rung) != 2:
                raise ValueError(f"rung[{p}] must be (i, n), rung i of a ladder of n, got {rung!r}")
            whole(f"rung[{p}][0]", rung[0], at_least=0)
            whole(f"rung[{p}][1]", rung[1], at_least=rung[0] + 1)
        object.__setattr__(self, "rung", tuple(tuple(rung) for rung in rungs))
        if len(rungs) != len(self.axis):
            raise ValueError(f"rung must have one value per pair like axis, {len(self.axis)}, got {len(rungs)}")

    @property
    def count(self) -> int:
        return self.axes

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        if len(self.axis) != pairs:
            raise ValueError(f"axis must have one value per pair, {pairs} here, got {len(self.axis)}")
        return self.axis

    def rung_of_pair(self, pairs: int) -> tuple[tuple[int, int], ...]:
        return super().rung_of_pair(pairs) if self.rung is None else self.rung
