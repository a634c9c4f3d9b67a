from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import listed, number, whole
from ..fixed_point import exact
from ..frequencies import inverse_frequencies, powers_float32
from .base import Scaling, check_seq_len, register_scaling

if TYPE_CHECKING:
    from torch import Tensor


@register_scaling
@dataclass(frozen=True)
class LongRoPE(Scaling):
    """A searched divisor per pair: ``theta'_i = theta_i / short_factor_i``, or ``long_factor_i`` once ``L > L0``.

    ``L`` is ``seq_len``, ``L0`` is ``original_max_position``. The choice holds for the whole sequence: keys rotated
    with one set do not fit queries rotated with the other. ``attention`` is the factor on cos and sin where the
    model states it; otherwise it is ``sqrt(1 + ln(factor) / ln(L0))`` with ``factor = L_max / L0`` (1 if ``factor``
    is at most 1). Models with one value for each set state ``attention_short`` too (Phi-3.5-MoE's ``short_mscale``).
    Source: Ding et al. 2024, arXiv:2402.13753, section 3; Phi-3's modeling code ("su").

    >>> scaling = LongRoPE(short_factor=(1.0, 1.0), long_factor=(1.0, 32.0), original_max_position=4096, factor=32.0)
    >>> [float(f) for f in scaling.inv_freq(Decimal(10_000), 4, seq_len=4097)]
    [1.0, 0.0003125]
    >>> round(scaling.attention_factor(), 8)  # sqrt(1 + 5/12)
    1.19023807
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position: int
    factor: float
    attention: float | None = None
    attention_short: float | None = None
    name = "longrope"
    length_dependent = True
    two_regimes = True

    def __post_init__(self) -> None:
        for side in ("short_factor", "long_factor"):
            listed(side, getattr(self, side))
            values = tuple(getattr(self, side))
            object.__setattr__(self, side, values)
            for i, value in enumerate(values):
                number(f"{side}[{i}]", value, above=0)
        if len(self.short_factor) != len(self.long_factor):
            raise ValueError(
                "short_factor and long_factor must have one value per pair each, "
                f"got {len(self.short_factor)} and {len(self.long_factor)}"
            )
        whole("original_max_position", self.original_max_position, at_least=2)
        number("factor", self.factor, above=0)
        for name in ("attention", "attention_short"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0)

    def factor_at(self, seq_len: int | None = None) -> None:
        """None: every pair has a divisor of its own."""

    def is_long(self, seq_len: int | None) -> bool:
        """Whether a sequence of ``seq_len`` tokens uses ``long_factor``."""
        check_seq_len(seq_len)
        return seq_len is not None and seq_len > self.original_max_position

    def regime(self, seq_len: int) -> int:
        """The trained length for all inside it, one more for all beyond."""
        return self.original_max_position + self.is_long(seq_len)

    def _divisors(self, dim: int, seq_len: int | None) -> tuple[float, ...]:
        side = "long_factor" if self.is_long(seq_len) else "short_factor"
        values: tuple[float, ...] = getattr(self, side)
        rungs = (dim + 1) // 2
        if len(values) != rungs:
            raise ValueError(f"{side} must have one value per pair, {rungs} for rotary_dim {dim}, got {len(values)}")
        return values

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        divisors = self._divisors(dim, seq_len)
        with exact():
            return [f / Decimal(d) for f, d in zip(inverse_frequencies(base, dim), divisors, strict=True)]

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        import torch

        divisors = torch.tensor(self._divisors(dim, seq_len), dtype=torch.float32, device="cpu")
        return 1.0 / (divisors * powers_float32(base, dim))

    def attention_factor(self, seq_len: int | None = None) -> float:
        if self.attention_short is not None and not self.is_long(seq_len):
            return self.attention_short
        if self.attention is not None:
            return self.attention
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_max_position))
