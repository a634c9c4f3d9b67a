from decimal import Decimal

import torch
from torch import Tensor

from ..rotary.fixed_point import steps
from ..rotary.frequencies import inverse_frequencies
from ..rotary.phase import cos_sin, phases
from ..support.checks import number, whole
from .base import Encoding, ScoreMod, check_heads, wide


class Sandwich(Encoding):
    """The product of two sinusoidal vectors as a bias that falls with distance, without parameters.

    ::

        bias = H / (8 h) sum_c cos((m - n) base ** (-2 c / dim)),    h = 1 ... H

    ``first`` is the c at which the sum of ``dim / 2`` terms begins: 1 in the paper's formula (and in NeMo), 0 in its
    listing (and in attention-gym). The logits differ, so a checkpoint needs the one it was trained with. NeMo
    subtracts ``dim / 2`` inside the sum, which softmax does not see. ``dim`` is not the width of a head.

    The sum is a product of sines and cosines of m and of n, whose phases are exact at any position. FlexAttention
    reads it from a tensor ``[B, Q, K]``.

    Source: Chi et al. 2022, arXiv:2212.10356, section 4.

    >>> encoding = Sandwich(num_heads=2, dim=4)
    >>> q, t = torch.zeros(1, 2, 1, 2), torch.arange(1)
    >>> encoding.bias(q, q, t, t, scale=1.0).flatten().tolist()  # no distance: both cosines are 1, times 2/8 and 2/16
    [0.5, 0.25]
    """

    def __init__(self, num_heads: int, *, dim: int = 128, base: float = 10_000.0, first: int = 1) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("dim", dim, at_least=2)
        if dim % 2:
            raise ValueError(f"dim must be even (half as many cosines are added), got {dim}")
        number("base", base, above=1)
        if first not in (0, 1):
            raise ValueError(f"first must be 1 (the paper's formula) or 0 (its listing), got {first!r}")
        self.num_heads, self.dim, self.base, self.first = num_heads, dim, base, first
        ladder = [*inverse_frequencies(Decimal(base), dim), 1 / Decimal(base)]
        self._steps = steps(ladder[first : first + dim // 2])

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        dtype = wide(q.dtype)
        return self._by_head(dtype, q.device).view(-1, 1, 1) * self._sums(q_positions, k_positions, dtype).unsqueeze(-3)

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        sums = self._sums(q_positions, k_positions, torch.float32)
        by_head = self._by_head(torch.float32, sums.device)

        def add_product(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + by_head[h] * sums[b, i, j]

        return add_product

    def _sums(self, q_positions: Tensor, k_positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Sums of cosines ``[(B,) Q, K]``, by ``cos(m - n) = cos m cos n + sin m sin n``."""
        step = torch.tensor([self._steps], dtype=torch.int64, device=q_positions.device)
        m, n = (torch.cat(cos_sin(phases(at.unsqueeze(0), step), dtype), -1) for at in (q_positions, k_positions))
        return m @ n.transpose(-1, -2)

    def _by_head(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self.num_heads / (8 * torch.arange(1, self.num_heads + 1, dtype=dtype, device=device))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, dim={self.dim}, base={self.base:g}, first={self.first}"
