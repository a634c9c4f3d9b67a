import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..support.checks import number, whole
from ..support.tracing import readable
from .base import Encoding, ScoreMod, check_heads, wide


class FIRE(Encoding):
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

    def by_distance(self, r: Tensor, latest: int, dtype: torch.dtype) -> Tensor | None:
        """Up to position L all queries have one divisor."""
        if not readable(self.L_multiplier) or latest >= self._least(dtype).item():
            return None
        return self._network(self._shares(torch.zeros_like(r), r, dtype))

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        return self._network(self._shares(q_positions.unsqueeze(-1), k_positions.unsqueeze(-2), wide(q.dtype)))

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        """`bias`, unit by unit."""
        dtype = wide(self.c.dtype)
        w1, b1, w2, b2 = self._weights(dtype)

        def network(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            x, out = self._shares(q_positions[b, i], k_positions[b, j], dtype), b2[h]
            for unit in range(len(b1)):
                out = out + w2[h, unit] * (w1[unit, 0] * x + b1[unit]).relu()
            return score + out

        return network

    def _network(self, x: Tensor) -> Tensor:
        """f of shares ``[..., Q, K]`` or ``[L]``, all units at once: ``[..., H, Q, K]`` or ``[H, L]``."""
        w1, b1, w2, b2 = self._weights(x.dtype)
        return linear(linear(x.unsqueeze(-1), w1, b1).relu(), w2, b2).movedim(-1, max(-3, -1 - x.ndim))

    def _weights(self, dtype: torch.dtype) -> list[Tensor]:
        return [p.to(dtype) for p in self.mlp.parameters()]

    def _least(self, dtype: torch.dtype) -> Tensor:
        return (self.init_L * self.L_multiplier).abs().to(dtype)

    def _shares(self, m: Tensor, n: Tensor, dtype: torch.dtype) -> Tensor:
        """``psi(m - n) / psi(max(L, m))``."""
        c = self.c.abs().to(dtype)
        far = torch.log1p(c * torch.maximum(m.to(dtype), self._least(dtype)))
        return torch.log1p(c * (m - n).abs().to(dtype)) / (far + 1e-6)
