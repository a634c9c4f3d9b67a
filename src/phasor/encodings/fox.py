import torch.nn.functional as F
from torch import Tensor, nn

from ..support.checks import whole
from .base import Encoding, ScoreMod, Tokens, check_heads, for_heads, wide


class FoX(Encoding):
    """Forgetting attention: each token and head decides how much of everything before it is forgotten.

    ::

        logit_ij = scale q_i . k_j + sum_{l = j+1 ... i} log f_l,    f_l = sigmoid(w_h . x_l + b_h)

    x are the hidden states that q and k are projected from: ``attention(..., hidden=x)``. A `KVCache` keeps log f
    beside the keys. No rotation is used with it (the authors' default). Sums are float64, so that a long row of gates
    costs no digits: their differences are what is added. The gradient runs through them to ``gate`` and x.

    Source: Lin et al. 2025, arXiv:2503.02130, section 3, and its code (zhixuan-lin/forgetting-transformer).

    >>> import torch
    >>> encoding = FoX(num_heads=2, dim=4)
    >>> encoding.gates(torch.zeros(1, 3, 4), torch.arange(3)).exp()[0, :, :, 0].tolist()  # f starts at one half
    [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
    """

    causal_only, in_order = True, True

    def __init__(self, num_heads: int, dim: int) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("dim", dim)
        self.num_heads = num_heads
        self.gate = nn.Linear(dim, num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights with deviation 0.02 and no bias, as the authors' code: f starts at about one half."""
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.zeros_(self.gate.bias)

    def gates(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """log f, float32 or float64."""
        logits = self.gate(hidden)
        return F.logsigmoid(logits.to(wide(logits.dtype))).transpose(1, 2).unsqueeze(-1)

    def content_bias(self, q: Tensor, k: Tensor, tokens: Tokens, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        return forgotten(tokens, 0, q)

    def content_score_mod(self, tokens: Tokens) -> ScoreMod:
        assert tokens.gates is not None
        sums = tokens.gates[..., 0].double().cumsum(-1)
        ahead = tokens.k_positions.shape[-1] - tokens.q_positions.shape[-1]

        def forget(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + (sums[b, h, i + ahead] - sums[b, h, j]).to(score.dtype)

        return forget


def forgotten(tokens: Tokens, column: int, q: Tensor) -> Tensor:
    """What log gates in a column sum up to between a query and each key, ``[B, H, Q, K]``; right for visible keys."""
    assert tokens.gates is not None and tokens.visible is not None
    sums = for_heads(tokens.gates[..., column], q.shape[1]).double().cumsum(-1)
    if not sums.shape[-1]:
        return q.new_zeros(*q.shape[:-1], 0, dtype=wide(q.dtype))
    own = tokens.visible.long().cumsum(-1).argmax(-1)  # the last key that a query sees is its own
    at_query = sums.gather(-1, own.expand(*sums.shape[:-1], -1))
    return (at_query.unsqueeze(-1) - sums.unsqueeze(-2)).to(wide(q.dtype))
