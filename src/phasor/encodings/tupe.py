import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from ..support.checks import flag, whole
from .additive import Tabled
from .base import distances
from .learned import Learned, check_inside
from .t5 import t5_bucket

BUCKETS = 32  # of T5, for distances up to 128


class TUPE(Tabled):
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

    def table(self, q_positions: Tensor, k_positions: Tensor, dtype: torch.dtype) -> Tensor:
        for at in (q_positions, k_positions):  # before -1 becomes the row of a scalar
            check_inside(at, self.vectors.table.num_embeddings - 1)
        bias = self._product(q_positions + 1, k_positions + 1, dtype)
        queries, keys = (q_positions == 0).unsqueeze(-1), (k_positions == 0).unsqueeze(-2)  # that are [CLS]
        if self.cls:
            ends = torch.arange(2, device=q_positions.device)
            row, column = self._product(ends, ends, dtype).diagonal(dim1=-2, dim2=-1).unbind(-1)
            bias = torch.where(keys.unsqueeze(-3), column.view(-1, 1, 1), bias)
            bias = torch.where(queries.unsqueeze(-3), row.view(-1, 1, 1), bias)
        if self.relative is not None:
            bucket = t5_bucket(-distances(q_positions, k_positions), bidirectional=True, num_buckets=BUCKETS)
            if self.cls:
                bucket = bucket.masked_fill(keys, BUCKETS).masked_fill(queries, BUCKETS // 2)
            bias = bias + self.relative(bucket).movedim(-1, -3).to(dtype)
        return bias

    def _product(self, q_rows: Tensor, k_rows: Tensor, dtype: torch.dtype) -> Tensor:
        q, k = self._projected(self.q_proj, q_rows, dtype), self._projected(self.k_proj, k_rows, dtype)
        return q @ k.transpose(-1, -2) * self.default_scale(q.shape[-1])

    def _projected(self, proj: nn.Linear, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """The position vectors of these rows as one projection has them, ``[(B,) H, S, head_dim]``."""
        nothing, norm = torch.zeros((), dtype=dtype, device=rows.device), self.norm
        vectors = self.vectors.embed(nothing, rows)
        vectors = layer_norm(vectors, norm.normalized_shape, norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
        projected = linear(vectors, proj.weight.to(dtype), proj.bias.to(dtype))
        return torch.unflatten(projected, -1, (self.num_heads, -1)).transpose(-2, -3)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, cls={self.cls}"
