import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..support.checks import number, whole
from .additive import Additive, Term
from .base import check_heads, wide


class FIRE(Additive):
    """A small network of the distance as a share of the query's position, on a logarithmic scale.

    ::

        bias = f_h(psi(m - n) / psi(max(L, m))),    psi(x) = log(1 + c x)

    f is ``Linear(1, width), ReLU, Linear(width, H)`` (``mlp``); c starts at 0.1, and ``L = init_L * L_multiplier``,
    whose multiplier is learned. The logits depend on m itself, so positions must count from 0 in each sequence, padded
    or packed, and the query must see earlier keys only.

    The authors published no code; ``1e-6`` in the divisor, the absolute values of c and L and the names of the
    parameters are those of the ports that models were trained with (DAPE, McLeish et al.'s arithmetic).

    Source: Li et al. 2023, arXiv:2310.04418, section 3.2, eq. 8 to 10.

    >>> encoding, q, t = FIRE(num_heads=1, width=1, init_L=4.0), torch.zeros(1, 1, 1, 2), torch.arange(10)
    >>> for p in encoding.mlp.parameters():
    ...     _ = nn.init.constant_(p, p.ndim - 1)  # weights 1, biases 0: f(x) = x
    >>> encoding.bias(q, q, t[9:], t[[0, 9]], scale=1.0).round(decimals=4).tolist()  # all of the way, and none
    [[[1.0, 0.0]]]
    """

    causal_only = True

    def __init__(self, num_heads: int, *, width: int = 32, init_L: float = 512.0) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("width", width)
        number("init_L", init_L, above=0)
        self.num_heads, self.init_L = num_heads, init_L
        self.mlp = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, num_heads))
        self.c = nn.Parameter(torch.empty(()))
        self.L_multiplier = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """c is 0.1 and the multiplier 1; the network as PyTorch starts it."""
        nn.init.constant_(self.c, 0.1)
        nn.init.ones_(self.L_multiplier)
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        """`term` of all pairs, the units of the network as one matrix: ten times as fast as one by one."""
        check_heads(self, self.num_heads, q)
        dtype = wide(q.dtype)
        x = self._shares(q_positions.unsqueeze(-1), k_positions.unsqueeze(-2), dtype).unsqueeze(-1)
        w1, b1, w2, b2 = (p.to(dtype) for p in self.mlp.parameters())
        return linear(linear(x, w1, b1).relu(), w2, b2).movedim(-1, -3)

    def term(self, dtype: torch.dtype) -> Term:
        w1, b1, w2, b2 = (p.to(dtype) for p in self.mlp.parameters())

        def network(h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            x, out = self._shares(m, n, dtype), b2[h]
            for i in range(len(b1)):
                out = out + w2[h, i] * (w1[i, 0] * x + b1[i]).relu()
            return out

        return network

    def _shares(self, m: Tensor, n: Tensor, dtype: torch.dtype) -> Tensor:
        """``psi(m - n) / psi(max(L, m))``."""
        c, least = self.c.abs().to(dtype), (self.init_L * self.L_multiplier).abs().to(dtype)
        far = torch.log1p(c * torch.maximum(m.to(dtype), least))
        return torch.log1p(c * (m - n).abs().to(dtype)) / (far + 1e-6)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, init_L={self.init_L:g}"
