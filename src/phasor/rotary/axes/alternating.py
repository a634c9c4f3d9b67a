from dataclasses import dataclass

from ...support.checks import flag, listed, whole
from .base import Axes, register_axes


@register_axes
@dataclass(frozen=True)
class Alternating(Axes):
    """The axes take turns pair by pair: pair ``p`` follows axis ``order[p mod n]`` of ``n`` axes.

    All pairs share one ladder, pair ``p`` on rung ``p``; with ``own_ladders`` every axis has a whole ladder of
    ``P / n`` rungs, which its pairs climb in step: ``base ** (-(p div n) / (P / n))``.
    Source: NeoMME's rotary module (one ladder); Kimi-K2.5's vision tower (``order=(1, 0)``, own ladders).

    >>> Alternating((1, 0)).axis_of_pair(4), Alternating((1, 0), own_ladders=True).rung_of_pair(4)
    ((1, 0, 1, 0), ((0, 2), (0, 2), (1, 2), (1, 2)))
    """

    order: tuple[int, ...] = (0, 1)
    own_ladders: bool = False
    name = "alternating"

    def __post_init__(self) -> None:
        listed("order", self.order)
        object.__setattr__(self, "order", tuple(self.order))
        flag("own_ladders", self.own_ladders)
        for i, axis in enumerate(self.order):
            whole(f"order[{i}]", axis, at_least=0)
        if len(self.order) < 2 or sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"order must name the axes 0, 1, … once each, at least two, got {self.order}")

    @property
    def count(self) -> int:
        return len(self.order)

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        if pairs % self.count:
            raise ValueError(
                f"order must name a number of axes that divides rotary_dim / 2 = {pairs} pairs, got {self.order}; "
                "use Listed for axes that do not come out even"
            )
        return tuple(self.order[p % self.count] for p in range(pairs))

    def rung_of_pair(self, pairs: int) -> tuple[tuple[int, int], ...]:
        if not self.own_ladders:
            return super().rung_of_pair(pairs)
        return tuple((p // self.count, pairs // self.count) for p in range(pairs))
