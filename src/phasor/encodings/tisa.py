import torch
from torch import Tensor, nn

from ..support.checks import whole
from .by_distance import ByDistance, Term


class TISA(ByDistance):
    """A sum of bells over the offset of the key: ``bias = sum_s a_sh exp(-|b_sh| (n - m - c_sh)^2)``.

    ``amplitudes`` a, ``sharpness`` b and ``offsets`` c are ``[kernels, num_heads]``. Keys on both sides.

    The authors' code scores ``m - n - 1`` instead of the paper's ``n - m``. Its checkpoints are the same function with
    ``offsets = -1 - (theirs)``; taken as they are, logits are wrong by 0.1 and more.

    Source: Wennberg and Henter 2021, arXiv:2106.01950, eq. 5; github.com/ulmewennberg/tisa.

    >>> encoding = TISA(num_heads=1, kernels=1)
    >>> with torch.no_grad():
    ...     for values, start in zip(encoding.parameters(), (3.0, 9.0, -1.0)):
    ...         _ = values.fill_(start)
    >>> q, t = torch.zeros(1, 1, 1, 2), torch.arange(4)
    >>> encoding.bias(q, q, t[2:3], t, scale=1.0).round(decimals=2).tolist()  # highest for the key just before
    [[[0.0, 3.0, 0.0, 0.0]]]
    """

    def __init__(self, num_heads: int, *, kernels: int = 5) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("kernels", kernels)
        self.num_heads = num_heads
        self.amplitudes = nn.Parameter(torch.empty(kernels, num_heads))
        self.sharpness = nn.Parameter(torch.empty(kernels, num_heads))
        self.offsets = nn.Parameter(torch.empty(kernels, num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal: offsets around 0 with deviation 5, the others around 0.1 with 0.01, as the authors' code."""
        nn.init.normal_(self.offsets, 0, 5)
        nn.init.normal_(self.amplitudes, 0.1, 0.01)
        nn.init.normal_(self.sharpness, 0.1, 0.01)

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        a, b, c = (p.to(dtype) for p in (self.amplitudes, self.sharpness.abs(), self.offsets))

        def bells(h: Tensor, r: Tensor) -> Tensor:
            first, *others = (a[s, h] * torch.exp(-b[s, h] * (r.to(dtype) - c[s, h]).square()) for s in range(len(a)))
            return sum(others, first)

        return bells
