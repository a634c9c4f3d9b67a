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


def stretched_base(base: Decimal, factor: Decimal, dim: int) -> Decimal:
    """``base * factor ** (dim / (dim - 2))``: the base that divides the slowest frequency by exactly ``factor``.

    >>> round(stretched_base(Decimal(10_000), Decimal(8), 128), 2)  # YaRN paper, eq. 16
    Decimal('82684.62')
    """
    with exact():
        return base * factor ** (Decimal(dim) / (dim - 2))


def check_dim(dim: int) -> None:
    if dim <= 2:
        raise ValueError(f"NTK scaling needs rotary_dim above 2 (its exponent is dim / (dim - 2)), got {dim}")


@register_scaling
@dataclass(frozen=True)
class NTK(Scaling):
    """NTK-aware: a larger base, ``base' = base * factor ** (dim / (dim - 2))``.

    The fastest pair keeps its frequency and the slowest is divided by ``factor``. ``dim`` is the rotary width.
    Source: YaRN, arXiv:2309.00071, section 3.1, eq. 16 (first u/bloc97, 2023). Hunyuan calls the factor ``alpha``.

    >>> [round(float(f), 6) for f in NTK(8.0).inv_freq(Decimal(10_000), 4)]
    [1.0, 0.00125]
    """

    factor: float
    name = "ntk"

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        check_dim(dim)
        return inverse_frequencies(stretched_base(base, Decimal(self.factor), dim), dim)

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        check_dim(dim)
        return inverse_frequencies_float32(base * self.factor ** (dim / (dim - 2)), dim)
