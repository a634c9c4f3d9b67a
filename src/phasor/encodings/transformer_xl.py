import torch
from torch import Tensor, nn

from ..support.checks import number, whole
from .base import Encoding, check_heads, for_heads, wide
from .sinusoidal import sinusoids


class TransformerXL(Encoding):
    """Transformer-XL's four-term logits: content and position, each with a learned query of its own.

    ::

        logit_mn = scale [ (q_m + u) . k_n + (q_m + v) . (W_R r_{m-n}) ]

    ``q_m = W_q x_m`` and ``k_n = W_E x_n`` are what attention already has, so the bias is
    ``scale [ u . k_n + (q_m + v) . (W_R r_{m-n}) ]``. ``u`` and ``v`` ``[H, head_dim]`` are learned and *not*
    multiplied by W_q; ``r_proj`` is ``W_R``; r is the sinusoid ``[sin | cos]`` of width ``dim``. Distances may be
    negative (XLNet).

    A sinusoid of a difference is a rotation, ``r_{m-n} . a = r_n . (a rotated by m)``, so queries are rotated once and
    meet the plain sinusoids of the keys: no table over distances, any positions. Rotated, they are ``[B, H, Q, dim]``.

    Source: Dai et al. 2019, arXiv:1901.02860, section 3.3. In XLNet u, v, W_R are ``r_w_bias``, ``r_r_bias`` and ``r``.

    >>> encoding = TransformerXL(num_heads=2, head_dim=4, dim=8)
    >>> q, t = torch.zeros(1, 2, 3, 4), torch.arange(3)
    >>> encoding.bias(q, q, t, t, scale=0.5).shape
    torch.Size([1, 2, 3, 3])
    """

    def __init__(self, num_heads: int, head_dim: int, dim: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim)
        number("base", base, above=0)
        if not isinstance(dim, int) or dim < 2 or dim % 2:
            raise ValueError(f"dim must be a positive even integer (sines and cosines come in pairs), got {dim!r}")
        self.num_heads, self.head_dim, self.base = num_heads, head_dim, base
        self.u = nn.Parameter(torch.empty(num_heads, head_dim))
        self.v = nn.Parameter(torch.empty(num_heads, head_dim))
        self.r_proj = nn.Linear(dim, num_heads * head_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation 0.02, as the authors' code."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        dtype = wide(q.dtype)
        q, k = q.to(dtype), for_heads(k.to(dtype), q.shape[1])
        content = torch.einsum("hd,bhkd->bhk", self.u.to(dtype), k)

        weight = torch.unflatten(self.r_proj.weight.to(dtype), 0, (self.num_heads, self.head_dim))
        seeking = torch.einsum("bhqd,hdc->bhqc", q + self.v.to(dtype).unsqueeze(-2), weight)
        rotated = _rotate(seeking, self._sinusoids(q_positions, dtype))
        position = rotated @ self._sinusoids(k_positions, dtype).transpose(-1, -2)
        return scale * (content.unsqueeze(-2) + position)

    def _sinusoids(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """``[S, dim]``, or ``[B, 1, S, dim]`` (the same for all heads)."""
        r = sinusoids(positions, self.r_proj.in_features, base=self.base, layout="sin_cos", dtype=dtype)
        return r if positions.ndim == 1 else r.unsqueeze(1)


def _rotate(a: Tensor, r_m: Tensor) -> Tensor:
    """``a'`` with ``a' . r_n = a . r_{m-n}``, from ``sin(m - n) = sin m cos n - cos m sin n`` and its cosine."""
    for_sin, for_cos = a.chunk(2, dim=-1)
    sin, cos = r_m.chunk(2, dim=-1)
    return torch.cat((for_cos * sin - for_sin * cos, for_sin * sin + for_cos * cos), dim=-1)
