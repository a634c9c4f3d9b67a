from math import ceil, log

import torch
from torch import Tensor, nn

from ..support.checks import flag, whole
from .base import Encoding, check_heads, distances, for_heads, wide


class DeBERTa(Encoding):
    """Disentangled attention: content meets content, content meets distance, and distance meets content.

    ::

        logit_ij = (q_i . k_j + q_i . Kr[delta] + k_j . Qr[delta]) / sqrt(3 head_dim)
        delta = clip(i - j + span, 0, 2 span - 1)

    Kr and Qr are ``key`` and ``query`` of the rows of ``table`` ``[2 span, dim]``. In the models one table serves all
    layers, and v2 and v3 take the projections of the tokens (``share_att_key``): assign theirs to ``key`` and
    ``query``, and to ``table`` theirs behind its LayerNorm. With ``max_position`` the distance goes through v2's
    logarithmic buckets first (span 256, max_position 512 in the released models). Beyond, keys ahead have row 0, as in
    transformers, which training on 512 tokens has never reached; with ``cut=True`` the distance stays at
    ``max_position - 1`` and they have row 1, as in the authors' code.

    The paper indexes Qr with ``delta(j, i)``; its authors' code and transformers, and so all trained models, with
    ``delta(i, j)`` as above. ``paper=True`` is the paper's. It is made for ``causal=False``; each row needs only its
    own keys, so it decodes as well.

    Source: He et al. 2020, arXiv:2006.03654, section 3.2; v3 arXiv:2111.09543; microsoft/DeBERTa.

    >>> DeBERTa(num_heads=2, head_dim=4, dim=8, span=3).default_scale(4) == (3 * 4) ** -0.5
    True
    """

    def __init__(
        self, num_heads: int, head_dim: int, dim: int, span: int, *, max_position: int | None = None,
        cut: bool = False, paper: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, value in (("num_heads", num_heads), ("head_dim", head_dim), ("dim", dim), ("span", span)):
            whole(name, value)
        flag("cut", cut)
        flag("paper", paper)
        self.num_heads, self.head_dim, self.span, self.paper = num_heads, head_dim, span, paper
        self.max_position = max_position
        self.buckets = None if max_position is None else log_buckets(span, max_position, cut)
        self.table = nn.Embedding(2 * span, dim)
        self.key, self.query = (nn.Linear(dim, num_heads * head_dim) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation 0.02 and no biases, as BERT."""
        for module in (self.table, self.key, self.query):
            nn.init.normal_(module.weight, std=0.02)
        for module in (self.key, self.query):
            nn.init.zeros_(module.bias)

    def default_scale(self, head_dim: int) -> float:
        return (3 * head_dim) ** -0.5  # three terms of the variance of one

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        dtype, size = wide(q.dtype), (self.num_heads, self.head_dim)
        q, k = q.to(dtype), for_heads(k.to(dtype), q.shape[1])
        to_key, to_query = (
            torch.unflatten(project(self.table.weight), -1, size).to(dtype).permute(1, 2, 0)  # [H, head_dim, 2 span]
            for project in (self.key, self.query)
        )
        apart = distances(q_positions, k_positions).unsqueeze(-3)
        there, back = self._delta(apart), self._delta(-apart if self.paper else apart)
        full = (*q.shape[:-1], k.shape[-2])
        content_to_position = (q @ to_key).gather(-1, there.expand(full))
        position_to_content = (k @ to_query).gather(-1, back.expand(full).mT).mT
        return scale * (content_to_position + position_to_content)

    def _delta(self, apart: Tensor) -> Tensor:
        if self.buckets is not None:
            table, last = torch.tensor(self.buckets, device=apart.device), len(self.buckets) - 1
            apart = table[apart.abs().clamp(max=last)] * apart.sign()
        return (apart + self.span).clamp(0, 2 * self.span - 1)


def log_buckets(span: int, max_position: int, cut: bool = False) -> tuple[int, ...]:
    """v2's bucket of each distance from 0: itself up to ``span // 2``, then logarithmic; farther ones have the last.

    >>> log_buckets(8, 16)
    (0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8)
    >>> log_buckets(8, 16, cut=True)[-1]
    7
    """
    middle = span // 2
    whole("max_position", max_position, at_least=middle + 2)
    whole("span", span, at_least=2)
    spread, last = log((max_position - 1) / middle), max_position - 1

    def bucket(r: int) -> int:
        return r if r <= middle else middle + ceil(log(r / middle) / spread * (middle - 1))

    while not cut and middle > 1 and bucket(last) < span:  # which clips to the last row on one side, and row 0
        last += 1
    return tuple(bucket(r) for r in range(last + 1))
