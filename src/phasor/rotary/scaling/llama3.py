from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import number, whole
from ..fixed_point import PI, exact
from ..frequencies import inverse_frequencies, inverse_frequencies_float32
from .base import Scaling, register_scaling

if TYPE_CHECKING:
    from torch import Tensor


@register_scaling
@dataclass(frozen=True)
class Llama3(Scaling):
    """Llama 3.1: slow pairs divided by ``factor``, fast pairs kept, a blend linear in the number of turns between.

    With ``turns = original_max_position * theta / 2 pi``: below ``low_freq_factor`` turns ``theta / factor``; above
    ``high_freq_factor`` turns ``theta``; between, ``theta * (w + (1 - w) / factor)`` with
    ``w = (turns - low) / (high - low)``. If both bounds are equal (Llama 4 Scout) there is no blend.
    Source: meta-llama/llama-models, ``apply_scaling``; transformers' ``rope_type: llama3``.

    >>> scaling = Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192)
    >>> plain = inverse_frequencies(Decimal(500_000), 128)
    >>> scaled = scaling.inv_freq(Decimal(500_000), 128)
    >>> float(plain[28] / scaled[28]), float(plain[35] / scaled[35])
    (1.0, 8.0)
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int
    name = "llama3"

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)
        number("low_freq_factor", self.low_freq_factor, above=0)
        number("high_freq_factor", self.high_freq_factor, at_least=self.low_freq_factor)
        whole("original_max_position", self.original_max_position)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        with exact():
            return [self._blend(f) for f in inverse_frequencies(base, dim)]

    def _blend(self, f: Decimal) -> Decimal:
        turns = self.original_max_position * f / (2 * PI)
        low, high, factor = Decimal(self.low_freq_factor), Decimal(self.high_freq_factor), Decimal(self.factor)
        if turns < low:
            return f / factor
        if turns > high or low == high:
            return f
        keep = (turns - low) / (high - low)
        return f * (keep + (1 - keep) / factor)

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        import torch

        inv_freq = inverse_frequencies_float32(base, dim)
        wavelength = 2 * math.pi / inv_freq
        slow = wavelength > self.original_max_position / self.low_freq_factor
        fast = wavelength < self.original_max_position / self.high_freq_factor
        slowed = torch.where(slow, inv_freq / self.factor, inv_freq)
        if self.low_freq_factor == self.high_freq_factor:
            return slowed
        span = self.high_freq_factor - self.low_freq_factor
        keep = (self.original_max_position / wavelength - self.low_freq_factor) / span
        blended = (1 - keep) * slowed / self.factor + keep * slowed
        return torch.where(slow | fast, slowed, blended)
