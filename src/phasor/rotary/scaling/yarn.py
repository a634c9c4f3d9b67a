from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import flag, number
from ..fixed_point import PI, exact
from ..frequencies import inverse_frequencies, powers_float32
from .base import Scaling, check_trained_length, register_scaling

if TYPE_CHECKING:
    from torch import Tensor


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """``0.1 * mscale * ln(factor) + 1``, and 1 for factors up to 1 (YaRN, eq. 22, with DeepSeek's ``mscale``).

    >>> round(magnitude(32.0), 6)
    1.346574
    """
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


@register_scaling
@dataclass(frozen=True)
class YaRN(Scaling):
    """YaRN as every library ships it: fast pairs kept, slow pairs divided by ``factor``, a ramp over the pair index.

    ``theta'_i = theta_i * (1 - ramp_i) + theta_i / factor * ramp_i`` with
    ``ramp_i = clip((i - low) / (high - low), 0, 1)``. ``low`` and ``high`` are the (fractional) indices of the pairs
    that make ``beta_fast`` and ``beta_slow`` turns inside ``original_max_position``, rounded outwards unless
    ``truncate=False`` (gpt-oss). The paper's own ramp is linear in the number of turns, which gives frequencies up to
    3 times away: see `YaRNPaper`.

    The factor on cos and sin is, in this order: ``attention`` if stated (it is final, not multiplied again);
    ``magnitude(factor, mscale) / magnitude(factor, mscale_all_dim)`` if both are non-zero (DeepSeek);
    ``magnitude(factor) = 0.1 ln(factor) + 1``.

    Source: Peng et al. 2023, arXiv:2309.00071, sections 3.2-3.4, and the authors' code for the ramp.

    >>> YaRN(factor=16.0, original_max_position=4096).ramp_bounds(10_000.0, 128)  # Llama 2
    (20.0, 46.0)
    >>> round(YaRN(factor=16.0, original_max_position=4096).attention_factor(), 6)
    1.277259
    """

    factor: float
    original_max_position: int = None  # type: ignore[assignment]  # checked below, where it is explained
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention: float | None = None
    name = "yarn"

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)
        check_trained_length(self.original_max_position)
        number("beta_slow", self.beta_slow, above=0)
        number("beta_fast", self.beta_fast, at_least=self.beta_slow)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), at_least=0)
        if self.attention is not None:
            number("attention", self.attention, above=0)
        flag("truncate", self.truncate)

    def ramp_bounds(self, base: float, dim: int) -> tuple[float, float]:
        """``(low, high)``: the pair indices where the ramp starts and ends."""
        low, high = (float(i) for i in self._bounds(Decimal(base), dim))
        return low, high

    def _bounds(self, base: Decimal, dim: int) -> tuple[Decimal, Decimal]:
        with exact():

            def index_with(turns: float) -> Decimal:
                return dim * (self.original_max_position / (2 * PI * Decimal(turns))).ln() / (2 * base.ln())

            low, high = index_with(self.beta_fast), index_with(self.beta_slow)
            if self.truncate:
                low, high = low.__floor__() * Decimal(1), high.__ceil__() * Decimal(1)
            # dim - 1 and not the last pair, and 0.001 against a division by zero: both as the authors' code has them.
            low, high = max(low, Decimal(0)), min(high, Decimal(dim - 1))
            return low, high + Decimal("0.001") * (low == high)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        low, high = self._bounds(base, dim)
        factor = Decimal(self.factor)
        with exact():

            def blend(i: int, f: Decimal) -> Decimal:
                ramp = min(max((i - low) / (high - low), Decimal(0)), Decimal(1))
                return f * (1 - ramp) + f / factor * ramp

            return [blend(i, f) for i, f in enumerate(inverse_frequencies(base, dim))]

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        import torch

        def index_with(turns: float) -> float:
            turning = self.original_max_position / (turns * 2 * math.pi)
            return (dim * math.log(turning)) / (2 * math.log(base))

        low, high = index_with(self.beta_fast), index_with(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        high += 0.001 * (low == high)
        ramp = ((torch.arange((dim + 1) // 2, dtype=torch.float32, device="cpu") - low) / (high - low)).clamp(0, 1)
        keep = 1 - ramp  # 1 - keep below is not the ramp to the last bit; the model's code rounds twice too
        powers = powers_float32(base, dim)
        return 1.0 / (self.factor * powers) * (1 - keep) + 1.0 / powers * keep

    def attention_factor(self, seq_len: int | None = None) -> float:
        if self.attention is not None:
            return self.attention
        if self.mscale and self.mscale_all_dim:
            return magnitude(self.factor, self.mscale) / magnitude(self.factor, self.mscale_all_dim)
        return magnitude(self.factor)

    def softmax_factor(self) -> float:
        """``magnitude(factor, mscale_all_dim) ** 2`` where the latter is stated, else 1."""
        mscale = magnitude(self.factor, self.mscale_all_dim) if self.mscale_all_dim else 1.0
        return mscale * mscale  # a power of an absurd mscale would raise OverflowError; infinity is refused as a factor


@register_scaling
@dataclass(frozen=True)
class YaRNPaper(Scaling):
    """YaRN as the paper writes it, with a ramp over the number of turns. No released checkpoint is known to use it.

    With ``turns = original_max_position * theta / 2 pi`` and ``w = clip((turns - alpha) / (beta - alpha), 0, 1)``:
    ``theta' = theta * w + theta / factor * (1 - w)``, and ``0.1 ln(factor) + 1`` on cos and sin.
    Source: Peng et al. 2023, arXiv:2309.00071, eq. 17-22. To load a checkpoint use `YaRN`.

    >>> scaling = YaRNPaper(factor=4.0, original_max_position=4096)
    >>> plain, scaled = inverse_frequencies(Decimal(10_000), 4), scaling.inv_freq(Decimal(10_000), 4)
    >>> scaled[0] == plain[0], round(float(scaled[1] / plain[1]), 4)  # 6.52 turns: w = 0.178
    (True, 0.3835)
    """

    factor: float
    original_max_position: int = None  # type: ignore[assignment]  # checked below, where it is explained
    alpha: float = 1.0
    beta: float = 32.0
    name = "yarn_paper"

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)
        check_trained_length(self.original_max_position)
        number("alpha", self.alpha, at_least=0)
        number("beta", self.beta, above=self.alpha)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        factor, alpha, beta = Decimal(self.factor), Decimal(self.alpha), Decimal(self.beta)
        with exact():

            def blend(f: Decimal) -> Decimal:
                turns = self.original_max_position * f / (2 * PI)
                keep = min(max((turns - alpha) / (beta - alpha), Decimal(0)), Decimal(1))
                return f * keep + f / factor * (1 - keep)

            return [blend(f) for f in inverse_frequencies(base, dim)]

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        """The exact values, rounded: there is no released arithmetic to repeat."""
        import torch

        values = [float(f) for f in self.inv_freq(Decimal(base), dim, seq_len)]
        return torch.tensor(values, dtype=torch.float32, device="cpu")

    def attention_factor(self, seq_len: int | None = None) -> float:
        return magnitude(self.factor)
