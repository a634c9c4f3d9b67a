from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ...support.checks import number
from ..fixed_point import exact
from ..frequencies import inverse_frequencies, inverse_frequencies_float32
from .base import Scaling, check_seq_len, check_trained_length, register_scaling
from .ntk import check_dim, stretched_base

if TYPE_CHECKING:
    from torch import Tensor


@register_scaling
@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """NTK-aware with a factor that follows the sequence: ``s = factor * L / L0 - (factor - 1)`` once ``L > L0``.

    ``L`` is ``seq_len`` and ``L0`` is ``original_max_position``; up to ``L0`` nothing changes. All queries and keys of
    one sequence must use one ``seq_len``: a cache of keys rotated earlier with a smaller one is inconsistent.
    Source: YaRN, arXiv:2309.00071, section 3.3; transformers' ``rope_type: dynamic``, whose modules form the base in
    float32 beyond ``L0``, which float32 angles repeat.

    >>> scaling = DynamicNTK(factor=2.0, original_max_position=4096)
    >>> float(scaling.factor_at(4096)), float(scaling.factor_at(8192))
    (1.0, 3.0)
    """

    factor: float
    original_max_position: int = None  # type: ignore[assignment]  # checked below, where it is explained
    name = "dynamic"
    length_dependent = True
    caution = "transformers keeps the base of the longest sequence so far; this spec goes by seq_len alone"

    def __post_init__(self) -> None:
        number("factor", self.factor, at_least=1)
        check_trained_length(self.original_max_position)

    def factor_at(self, seq_len: int | None = None) -> Decimal:
        """The NTK factor for a sequence of ``seq_len`` tokens; 1 inside the trained length."""
        check_seq_len(seq_len)
        with exact():
            factor, trained = Decimal(self.factor), self.original_max_position
            return factor * max(seq_len or 0, trained) / trained - (factor - 1)

    def regime(self, seq_len: int) -> int:
        """The length itself; the trained one for all inside it."""
        return max(seq_len, self.original_max_position)

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        check_dim(dim)
        return inverse_frequencies(stretched_base(base, self.factor_at(seq_len), dim), dim)

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        import torch

        check_dim(dim)
        check_seq_len(seq_len)
        trained = self.original_max_position
        length: float | Tensor = trained
        if seq_len is not None and seq_len > trained:
            # transformers then finds it among the positions: a tensor, which makes float32 of all that follows
            length = torch.tensor(seq_len, dtype=torch.float32, device="cpu")
        ratio = (self.factor * length / trained) - (self.factor - 1)
        return inverse_frequencies_float32(base * ratio ** (dim / (dim - 2)), dim)


@register_scaling
@dataclass(frozen=True)
class SteppedNTK(Scaling):
    """Qwen-1's dynamic NTK: the factor jumps to ``2 ** ceil(log2(L / L0) + 1) - 1`` (3, 7, 15, …) once ``L > L0``.

    Steps keep the base constant while a sequence grows within one octave of length.
    Source: Qwen-7B's modeling_qwen.py, ``get_ntk_alpha`` (``use_dynamic_ntk``).

    >>> [SteppedNTK(2048).factor_at(n) for n in (2048, 2049, 4096, 4097)]
    [1, 3, 3, 7]
    """

    original_max_position: int = None  # type: ignore[assignment]  # checked below, where it is explained
    name = "stepped_ntk"
    length_dependent = True

    def __post_init__(self) -> None:
        check_trained_length(self.original_max_position)

    def factor_at(self, seq_len: int | None = None) -> int:
        """The NTK factor for a sequence of ``seq_len`` tokens; 1 inside the trained length."""
        check_seq_len(seq_len)
        octaves = math.ceil(math.log2(max(seq_len or 0, self.original_max_position) / self.original_max_position))
        return 2 ** (octaves + 1) - 1  # one octave beyond the trained length: 3, two: 7; inside it 1

    def regime(self, seq_len: int) -> int:
        """The longest length of the octave: the trained one, times two, times four, …"""
        # The factor is one less than a power of two; half of that power is the octave's length in trained lengths.
        return int((self.factor_at(seq_len) + 1) // 2) * self.original_max_position

    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        check_dim(dim)
        return inverse_frequencies(stretched_base(base, Decimal(self.factor_at(seq_len)), dim), dim)

    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        check_dim(dim)
        return inverse_frequencies_float32(base * self.factor_at(seq_len) ** (dim / (dim - 2)), dim)
