from decimal import Decimal

import torch

from ..rotary.fixed_point import steps
from ..rotary.frequencies import inverse_frequencies
from ..support.checks import number, whole
from .by_distance import ByDistance, Term
from .sinusoidal import waves


class Sandwich(ByDistance):
    """The product of two sinusoidal vectors as a bias that falls with distance, without parameters.

    ::

        bias = H / (8 h) sum_c cos((m - n) base ** (-2 c / dim)),    h = 1 ... H

    ``first`` is the c at which the sum of ``dim / 2`` terms begins: 1 in the paper's formula (and in NeMo), 0 in its
    listing (and in attention-gym). The logits differ, so a checkpoint needs the one it was trained with. NeMo
    subtracts ``dim / 2`` inside the sum, which softmax does not see. ``dim`` is not the width of a head.

    The phases are exact at any distance.

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

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        return lambda h, r: self.num_heads / (8 * (h + 1)).to(dtype) * waves(r, self._steps, dtype)[0].sum(-1)
