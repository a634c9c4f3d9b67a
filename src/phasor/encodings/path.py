import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..support.checks import flag, whole
from .base import Encoding, Tokens, check_heads, for_heads, wide
from .fox import forgotten

BLOCK = 64  # keys that are passed at once


class PaTH(Encoding):
    """A reflection for each token: what lies between a query and a key turns the query on its way to it.

    ::

        logit_ij = scale q_i^T H_i H_{i-1} ... H_{j+1} k_j,    H_t = I - beta_t w_t w_t^T,    |w_t| = 1

    ``beta = 2 sigmoid(.)`` and w are made of the hidden states (``attention(..., hidden=x)``): a projection of rank 32
    (of full rank where query heads share keys), a convolution over the token and the two before it, SiLU, and the
    length one. A `KVCache` keeps (w, beta) beside the keys, which stay as they are: the published code rewrites every
    cached key at every token instead, with the same logits. Passing keys go by blocks, each one triangular system.

    Source: Yang et al. 2025, arXiv:2505.16381, sections 2 and 3; fla-org/flash-linear-attention, fla/layers/path_attn.
    Its training rounds w to float16; here it keeps the dtype of the logits.

    >>> encoding = PaTH(num_heads=2, head_dim=4, dim=8)
    >>> encoding.gates(torch.ones(1, 3, 8), torch.arange(3)[None]).shape  # w and beta
    torch.Size([1, 2, 3, 5])
    """

    causal_only, in_order, reach = True, True, 2

    def __init__(self, num_heads: int, head_dim: int, dim: int, *, kv_heads: int | None = None, rank: int = 32) -> None:
        super().__init__()
        kv_heads = num_heads if kv_heads is None else kv_heads
        sizes = {"num_heads": num_heads, "head_dim": head_dim, "dim": dim, "kv_heads": kv_heads, "rank": rank}
        for name, value in sizes.items():
            whole(name, value)
        if num_heads % kv_heads:
            raise ValueError(f"kv_heads must divide num_heads = {num_heads}, got {kv_heads}")
        self.num_heads, self.head_dim = num_heads, head_dim
        width = kv_heads * head_dim
        low = (nn.Linear(dim, rank, bias=False), nn.Linear(rank, width, bias=False))
        self.direction = nn.Sequential(*low) if kv_heads == num_heads else nn.Linear(dim, width, bias=False)
        self.taps = nn.Parameter(torch.empty(width, self.reach + 1))  # the oldest token first
        self.strength = nn.Linear(dim, kv_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation 0.02 and no biases, as the authors' models."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02) if parameter.ndim > 1 else nn.init.zeros_(parameter)

    def gates(self, hidden: Tensor, positions: Tensor) -> Tensor:
        w = F.silu(self._convolved(self.direction(hidden), positions))
        w = torch.unflatten(w, -1, (-1, self.head_dim)).transpose(1, 2)
        w = w.to(wide(w.dtype))
        w = w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        beta = 2 * self.strength(hidden).sigmoid().transpose(1, 2).unsqueeze(-1)
        return torch.cat((w, beta.to(w.dtype)), dim=-1)

    def _convolved(self, x: Tensor, positions: Tensor) -> Tensor:
        """Each token and those before it, which count only where their positions say that they are of its document."""
        out = x * self.taps[:, -1]
        for back in range(1, self.reach + 1):
            follows = positions[:, back:] - positions[:, :-back] == back
            earlier = x[:, :-back] * follows.unsqueeze(-1) * self.taps[:, -1 - back]
            out = out + F.pad(earlier, (0, 0, back, 0))[:, : x.shape[1]]
        return out

    def content_bias(self, q: Tensor, k: Tensor, tokens: Tokens, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        assert tokens.gates is not None and tokens.visible is not None
        dtype, width, turned, parts = wide(q.dtype), self.head_dim, q.to(wide(q.dtype)), []
        q, k, gates = turned, *(for_heads(x.to(dtype), q.shape[1]) for x in (k, tokens.gates))
        visible = tokens.visible.split(BLOCK, -1)
        for keys, gate, seen in reversed(list(zip(k.split(BLOCK, -2), gates.split(BLOCK, -2), visible, strict=True))):
            w, beta = gate[..., :width], gate[..., width : width + 1].mT
            # How far each w turns the query: steps (I + lower(w w^T) beta) = (query w^T) beta, of tokens up to its own.
            system = torch.eye(w.shape[-2], dtype=dtype, device=w.device) + (w @ w.mT).tril(-1) * beta
            reached = (turned @ w.mT) * seen * beta
            steps = torch.linalg.solve_triangular(system, reached, upper=False, left=False, unitriangular=True)
            parts.append((turned - q) @ keys.mT - steps @ (w @ keys.mT).tril(-1))
            turned = turned - steps @ w
        return scale * torch.cat(parts[::-1], dim=-1)


class PaTHFoX(PaTH):
    """`PaTH` with the forget gates of `FoX`.

    The authors' kernels multiply the sum of log gates by ``scale`` with everything else, unlike FoX, and their
    decoding does so too: ``scaled_gate`` is the default. False adds it as FoX does.

    Source: Yang et al. 2025, arXiv:2505.16381, section 3.4; fla/ops/path_attn.

    >>> encoding = PaTHFoX(num_heads=2, head_dim=4, dim=8)
    >>> encoding.gates(torch.ones(1, 3, 8), torch.arange(3)[None]).shape  # w, beta and log f
    torch.Size([1, 2, 3, 6])
    """

    def __init__(
        self, num_heads: int, head_dim: int, dim: int, *, kv_heads: int | None = None, rank: int = 32,
        scaled_gate: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_heads, head_dim, dim, kv_heads=kv_heads, rank=rank)
        flag("scaled_gate", scaled_gate)
        self.scaled_gate = scaled_gate
        self.gate = nn.Linear(dim, num_heads)
        self.reset_parameters()

    def gates(self, hidden: Tensor, positions: Tensor) -> Tensor:
        turning = for_heads(super().gates(hidden, positions), self.num_heads)
        log_f = F.logsigmoid(self.gate(hidden).to(turning.dtype)).transpose(1, 2).unsqueeze(-1)
        return torch.cat((turning, log_f), dim=-1)

    def content_bias(self, q: Tensor, k: Tensor, tokens: Tokens, scale: float) -> Tensor:
        bias = super().content_bias(q, k, tokens, scale)
        return bias + forgotten(tokens, -1, q) * (scale if self.scaled_gate else 1.0)
