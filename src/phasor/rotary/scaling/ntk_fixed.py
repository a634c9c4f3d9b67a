from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import number
from ..fixed_point import exact
from ..frequencies import inverse_frequencies, inverse_frequencies_float32
from .base import Scaling, register_scaling

if TYPE_CHECKING:
    from torch import Tensor


@register_scaling
@dataclass(frozen=True)
class NTKFixed(Scaling):
    """Su's corrected NTK: ``theta'_i = theta_i / factor ** (2 (i + 1) / dim)``, so that every pair is slowed.

    Written as shipped, the base grows to ``base * factor`` and all frequencies fall by ``factor ** (2 / dim)``.
    Source: Su Jianlin, kexue.fm 9706, section "NTK-fixed"; shipped by Alibaba's gte embedding models as ``ntk``.

    >>> [round(float(f), 6) for f in NTKFixed(4.0).inv_freq(Decimal(10_000), 4)]
    [0.5, 0.0025]
    """

    factor: float
    name = "ntk_fixed"

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        with exact():
            factor = Decimal(self.factor)
            slower = factor ** (Decimal(2) / dim)
            return [f / slower for f in inverse_frequencies(base * factor, dim)]

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        return inverse_frequencies_float32(base * self.factor, dim) / self.factor ** (2 / dim)
