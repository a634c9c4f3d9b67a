from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import number
from .base import Scaling, check_seq_len, register_scaling

if TYPE_CHECKING:
    from torch import Tensor


@register_scaling
@dataclass(frozen=True)
class AtLength(Scaling):
    """Another scaling at one length, on which nothing depends any more: ``theta'_i = scaling(seq_len)_i``.

    `RotarySpec.at_length` makes it. ``attention``, where it is stated, is the factor on cos and sin in place of the
    scaling's own: 1 for what moves keys that carry their factor already. Lengths of one regime are written as one, the
    one that the scaling names (`Scaling.regime`), so that equal frequencies are equal specs.
    Source: transformers' ``dynamic_rope_update``, which does it anew for every call.

    >>> from phasor.scaling import DynamicNTK
    >>> scaling = DynamicNTK(factor=2.0, original_max_position=4096)
    >>> float(AtLength(scaling, 8192).factor_at()), AtLength(scaling, 7) == AtLength(scaling, 4096)
    (3.0, True)
    """

    scaling: Scaling
    seq_len: int | None
    attention: float | None = None
    name = "at_length"

    def __post_init__(self) -> None:
        if not isinstance(self.scaling, Scaling) or isinstance(self.scaling, AtLength):
            raise ValueError(f"scaling must not be fixed to a length already, got {self.scaling!r}")
        check_seq_len(self.seq_len)
        if self.scaling.length_dependent and self.seq_len is None:
            raise ValueError(f"seq_len must be a length for {self.scaling.name} scaling, got None")
        if self.attention is not None:
            number("attention", self.attention, above=0)
        length = self.scaling.regime(self.seq_len) if self.seq_len and self.scaling.length_dependent else None
        object.__setattr__(self, "seq_len", length)

    @property
    def trained_length(self) -> int | None:
        """That of the scaling."""
        return self.scaling.trained_length

    def factor_at(self, seq_len: int | None = None) -> Decimal | float | None:
        """The scaling's at its length, whatever ``seq_len`` says."""
        return self.scaling.factor_at(self.seq_len)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        return self.scaling.inv_freq(base, dim, self.seq_len)

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        return self.scaling.inv_freq_float32(base, dim, self.seq_len)

    def attention_factor(self, seq_len: int | None = None) -> float:
        return self.scaling.attention_factor(self.seq_len) if self.attention is None else self.attention

    def softmax_factor(self) -> float:
        return self.scaling.softmax_factor()
