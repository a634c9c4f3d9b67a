import torch
from torch import Tensor, nn

from ..support.checks import whole
from .by_distance import ByDistance, Term

LEAST = 0.01  # the authors clamp both parameters to it


class KerpleLog(ByDistance):
    """A penalty that grows with the logarithm of distance: ``bias = -r1_h log(1 + r2_h |m - n|)``.

    Both parameters are one per head and positive: a value below 0.01 counts as 0.01, and still has its gradient. (The
    authors' code writes 0.01 into the parameter instead; the logits are the same.) There ``r1`` is ``bias_p``, and
    ``r2`` is ``bias_a``.

    Source: Chi et al. 2022, arXiv:2205.09921, section 4.2; ``ParallelKerpleLog`` of chijames/KERPLE.

    >>> encoding = KerpleLog(num_heads=1)
    >>> _ = nn.init.ones_(encoding.r1), nn.init.ones_(encoding.r2)
    >>> q, t = torch.zeros(1, 1, 1, 2), torch.arange(8)
    >>> encoding.bias(q, q, t[7:], t[[0, 4, 6, 7]], scale=1.0).exp().round(decimals=4).tolist()  # 1 / (1 + distance)
    [[[0.125, 0.25, 0.5, 1.0]]]
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        self.num_heads = num_heads
        self.r1, self.r2 = nn.Parameter(torch.empty(num_heads)), nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform, r1 up to 2 and r2 up to 1, as the authors' code."""
        nn.init.uniform_(self.r1, 0, 2)
        nn.init.uniform_(self.r2, 0, 1)

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        r1, r2 = _inside(self.r1, dtype), _inside(self.r2, dtype)
        return lambda h, r: -r1[h] * torch.log1p(r2[h] * r.abs().to(dtype))


class KerplePower(KerpleLog):
    """A penalty that grows with a power of distance: ``bias = -r1_h |m - n| ** r2_h``, r2 from 0.01 to 2.

    r1 is the authors' ``bias_a`` and r2 their ``bias_p``. With ``r2 = 1`` it is ALiBi with learned slopes.

    Source: Chi et al. 2022, arXiv:2205.09921, section 4.2; ``ParallelKerplePower`` of chijames/KERPLE.

    >>> encoding = KerplePower(num_heads=1)
    >>> _ = nn.init.constant_(encoding.r1, 0.5), nn.init.constant_(encoding.r2, 2.0)
    >>> q, t = torch.zeros(1, 1, 1, 2), torch.arange(4)
    >>> encoding.bias(q, q, t[3:], t, scale=1.0).flatten().tolist()
    [-4.5, -2.0, -0.5, -0.0]
    """

    def reset_parameters(self) -> None:
        """Uniform, r1 up to 1 and r2 up to 2, as the authors' code."""
        nn.init.uniform_(self.r1, 0, 1)
        nn.init.uniform_(self.r2, 0, 2)

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        r1, r2 = _inside(self.r1, dtype), _inside(self.r2, dtype, most=2.0)

        def power(h: Tensor, r: Tensor) -> Tensor:
            distance = r.abs()  # none has the power 0, whose second derivative would be NaN
            return -r1[h] * distance.clamp(min=1).to(dtype) ** r2[h] * (distance > 0)

        return power


def _inside(r: Tensor, dtype: torch.dtype, most: float | None = None) -> Tensor:
    """Clamped, with the gradient of the value before: one that was pushed out can come back."""
    r = r.to(dtype)
    return r.detach().clamp(LEAST, most) + (r - r.detach())
