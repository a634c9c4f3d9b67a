from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from ..support.checks import flag, whole
from .base import Encoding, ScoreMod, check_heads, wide
from .learned import Learned, check_inside
from .t5 import t5_bucket

BUCKETS, FARTHEST = 32, 128  # T5's


class TUPE(Encoding):
    """Positions meet positions, apart from the content: projected position vectors of their own, shared by all layers.

    ::

        bias = (LN(p_m) W_q)_h . (LN(p_n) W_k)_h / sqrt(2 head_dim)  (+ r_h[bucket(n - m)] if relative)

    With ``cls`` the token at position 0 is [CLS], which has no place: its row of the bias is one learned scalar for
    each head, its column another. ``relative=True`` is TUPE-R, with T5's 32 buckets for both sides and a 33rd for the
    key [CLS]; the query [CLS] has number 16, which no distance uses. Content is scaled by ``1 / sqrt(2 head_dim)``
    alike.

    ``vectors.table`` is ``[num_positions + 1, num_heads * head_dim]``, as in the authors' code: position t is row
    ``t + 1``, and rows 0 and 1 give the scalars.

    Source: Ke, He, Liu 2020, arXiv:2006.15595, eq. 10 and section 3.2; github.com/guolinke/TUPE.

    >>> encoding = TUPE(num_heads=2, head_dim=4, num_positions=8)
    >>> q, t = torch.zeros(1, 2, 3, 4), torch.arange(3)
    >>> bias = encoding.bias(q, q, t, t, scale=1.0)
    >>> bool((bias[:, 0] == bias[:, :1, 0]).all()), encoding.default_scale(8)  # all that [CLS] sees is alike
    (True, 0.25)
    """

    def __init__(
        self, num_heads: int, head_dim: int, num_positions: int, *, relative: bool = False, cls: bool = True
    ) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim)
        flag("relative", relative)
        flag("cls", cls)
        self.num_heads, self.cls = num_heads, cls
        dim = num_heads * head_dim
        self.vectors = Learned(num_positions + 1, dim)
        self.norm = nn.LayerNorm(dim)
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.relative = nn.Embedding(BUCKETS + 1, num_heads) if relative else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation 0.02 and biases 0, as the authors' code; the relative logits too."""
        self.norm.reset_parameters()
        self.vectors.reset_parameters()
        for layer in (self.q_proj, self.k_proj):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        if self.relative is not None:
            nn.init.normal_(self.relative.weight, std=0.02)

    def default_scale(self, head_dim: int) -> float:
        """``1 / sqrt(2 head_dim)``: content and position are two terms of one sum."""
        return (2 * head_dim) ** -0.5

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        dtype = wide(q.dtype)
        of_q, of_k = self._vectors(q_positions, k_positions, dtype)
        heads = torch.arange(self.num_heads, device=q.device).view(-1, 1, 1)
        m, n = q_positions.unsqueeze(-1).unsqueeze(-3), k_positions.unsqueeze(-2).unsqueeze(-3)
        return self._finished(dtype, q.device)(of_q @ of_k.mT * self.default_scale(of_q.shape[-1]), heads, m, n)

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        """`bias`, channel by channel."""
        dtype = wide(self.vectors.table.weight.dtype)
        of_q, of_k = self._vectors(q_positions, k_positions, dtype)
        finished = self._finished(dtype, q_positions.device)

        def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            first, *others = (of_q[b, h, i, c] * of_k[b, h, j, c] for c in range(of_q.shape[-1]))
            product = sum(others, first) * self.default_scale(of_q.shape[-1])
            return score + finished(product, h, q_positions[b, i], k_positions[b, j])

        return add

    def _finished(self, dtype: torch.dtype, device: torch.device) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """What makes products of heads h at ``(m, n)`` the bias: [CLS] apart, and the distance."""
        scalars = torch.arange(2, device=device)
        to_q, to_k = (self._projected(proj, scalars, dtype) for proj in (self.q_proj, self.k_proj))
        row, column = ((to_q * to_k).sum(-1) * self.default_scale(to_q.shape[-1])).unbind(-1)
        reach = torch.arange(-FARTHEST, FARTHEST + 1, device=device)
        buckets = t5_bucket(reach, bidirectional=True, num_buckets=BUCKETS, max_distance=FARTHEST)

        def finished(product: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            bucket = buckets[(n - m).clamp(-FARTHEST, FARTHEST) + FARTHEST]
            if self.cls:
                product = torch.where(m == 0, row[h], torch.where(n == 0, column[h], product))
                bucket = torch.where(m == 0, BUCKETS // 2, torch.where(n == 0, BUCKETS, bucket))
            return product if self.relative is None else product + self.relative.weight.to(dtype)[bucket, h]

        return finished

    def _vectors(self, q_positions: Tensor, k_positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The position vectors as queries and as keys, ``[(B,) H, S, head_dim]``."""
        for at in (q_positions, k_positions):  # before -1 becomes the row of a scalar
            check_inside(at, self.vectors.table.num_embeddings - 1)
        return self._projected(self.q_proj, q_positions + 1, dtype), self._projected(
            self.k_proj, k_positions + 1, dtype
        )

    def _projected(self, proj: nn.Linear, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """These rows of the table as one projection has them."""
        nothing, norm = torch.zeros((), dtype=dtype, device=rows.device), self.norm
        vectors = self.vectors.embed(nothing, rows)
        vectors = layer_norm(vectors, norm.normalized_shape, norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
        projected = linear(vectors, proj.weight.to(dtype), proj.bias.to(dtype))
        return torch.unflatten(projected, -1, (self.num_heads, -1)).transpose(-2, -3)
