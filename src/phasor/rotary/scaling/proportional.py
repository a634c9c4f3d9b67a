from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import number
from ..fixed_point import exact
from ..frequencies import inverse_frequencies, powers_float32
from .base import Scaling, register_scaling

if TYPE_CHECKING:
    from torch import Tensor


@register_scaling
@dataclass(frozen=True)
class Proportional(Scaling):
    """p-RoPE: keep the ``int(fraction * dim / 2)`` fastest pairs of the full ladder, stop all others (frequency 0).

    Unlike partial rotary, the exponent keeps the full width and stopped pairs stay paired in the full head: with the
    halves layout the rotating channels are ``0 … n-1`` and ``dim/2 … dim/2 + n-1``. Their frequencies are divided by
    ``factor``.
    Source: Barbero et al. 2024, arXiv:2410.06205, section 6; Gemma 4's full-attention layers.

    >>> [float(f) for f in Proportional(fraction=0.5).inv_freq(Decimal(10_000), 8)]
    [1.0, 0.1, 0.0, 0.0]
    """

    fraction: float
    factor: float = 1.0
    name = "proportional"

    def __post_init__(self) -> None:
        number("fraction", self.fraction, above=0)
        if self.fraction > 1:
            raise ValueError(f"fraction must be at most 1 (the share of pairs that rotate), got {self.fraction!r}")
        number("factor", self.factor, above=0)

    def _rotating(self, dim: int) -> int:
        kept = int(self.fraction * dim // 2)
        if kept < 1:
            raise ValueError(f"fraction must keep at least one of {dim // 2} pairs, got {self.fraction!r}")
        return kept

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        kept = self._rotating(dim)
        with exact():
            turning = [f / Decimal(self.factor) for f in inverse_frequencies(base, dim)[:kept]]
        return turning + [Decimal(0)] * (dim // 2 - kept)

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        import torch

        kept = self._rotating(dim)
        turning = 1.0 / powers_float32(base, dim, kept)
        return torch.cat((turning, turning.new_zeros(dim // 2 - kept))) / self.factor
