import torch
from torch import Tensor, nn

from ..support.checks import flag, whole
from .base import Encoding, Tokens, for_heads, wide


class CoPE(Encoding):
    """Contextual positions: a query counts the keys that matter to it, from itself backwards.

    ::

        g_ij = sigmoid(scale q_i . k_j),    p_ij = min(sum_{t = j ... i} g_it, num_positions - 1)
        logit_ij = scale (q_i . k_j + z_i(p_ij)),    z_i(p) = q_i . e_p at whole p, linear in between

    The sum runs over visible keys and includes both ends: ``p_ii = g_ii``. ``table`` is e, ``[head_dim,
    num_positions]``, shared by all heads; each layer has its own. It starts at zero. No gradient goes to the rounded
    positions, one goes through the weights between them. Keys are cached as they are.

    The authors' code scales z with the scores (the default here). The listing in their paper and the code's ``nodiv``
    option do not, ``scaled=False``: ``logit_ij = scale q_i . k_j + z_i``. Both are in use.

    Source: Golovneva et al. 2024, arXiv:2405.18719, section 4 and its appendix's listing; facebookresearch/RAM.

    >>> encoding = CoPE(head_dim=4, num_positions=3)
    >>> encoding.table.shape, bool(encoding.table.any())
    (torch.Size([4, 3]), False)
    """

    causal_only, in_order = True, True

    def __init__(self, head_dim: int, num_positions: int, *, scaled: bool = True) -> None:
        super().__init__()
        whole("head_dim", head_dim)
        whole("num_positions", num_positions)
        flag("scaled", scaled)
        self.num_positions, self.scaled = num_positions, scaled
        self.table = nn.Parameter(torch.empty(head_dim, num_positions))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero: at first there are no positions."""
        nn.init.zeros_(self.table)

    def content_bias(self, q: Tensor, k: Tensor, tokens: Tokens, scale: float) -> Tensor:
        if q.shape[-1] != len(self.table):
            raise ValueError(f"q must have the head_dim {len(self.table)} that CoPE was made for, got {q.shape[-1]}")
        assert tokens.visible is not None
        q, k = q.to(wide(q.dtype)), for_heads(k.to(wide(k.dtype)), q.shape[1])
        gates = (scale * q @ k.mT).sigmoid() * tokens.visible
        at = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.num_positions - 1)
        below = at.detach().floor()
        by_position = q @ self.table.to(q.dtype) * (scale if self.scaled else 1.0)
        return torch.lerp(by_position.gather(-1, below.long()), by_position.gather(-1, at.ceil().long()), at - below)
