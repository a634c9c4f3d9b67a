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
class Linear(Scaling):
    """Position interpolation: ``theta' = theta / factor``, as if positions were ``position / factor``.

    Source: Chen et al. 2023, arXiv:2306.15595, section 2.3, eq. 4 (and kaiokendev's SuperHOT).

    >>> [str(f.normalize()) for f in Linear(4.0).inv_freq(Decimal(10_000), 4)]
    ['0.25', '0.0025']
    """

    factor: float
    name = "linear"

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        with exact():
            return [f / Decimal(self.factor) for f in inverse_frequencies(base, dim)]

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        return inverse_frequencies_float32(base, dim) / self.factor
