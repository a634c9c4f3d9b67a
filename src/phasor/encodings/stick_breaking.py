import torch
import torch.nn.functional as F
from torch import Tensor

from ..support.checks import flag
from .base import Encoding, Tokens


class StickBreaking(Encoding):
    """Stick-breaking attention in place of the softmax: each key, from the newest back, takes a share of what is left.

    ::

        weight_ij = sigmoid(z_ij) prod_{j < t < i} (1 - sigmoid(z_it)),    z = scale q k^T,    j < i

    It has no parameters, and order enters through the product alone. A query does not see its own key unless
    ``attend_current``; rows sum to less than one, the first to zero. ``remainder`` gives the rest to the query's own
    value, as the authors' tests and models do. Sums of ``log sigmoid``, never ``1 - sigmoid``: nothing is lost where a
    gate is nearly one. Keys and values are cached as they are.

    Source: Tan et al. 2024, arXiv:2410.17980, section 3, equations 1 to 3; shawntan/stickbreaking-attention.

    >>> at = torch.arange(3)[None]
    >>> tokens = Tokens(at, at, visible=torch.ones(1, 1, 3, 3).tril().bool())
    >>> StickBreaking().weights(torch.zeros(1, 1, 3, 3), tokens)[0, 0].tolist()  # half, then half of the rest
    [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.25, 0.5, 0.0]]
    """

    causal_only, in_order, needs_weights = True, True, True

    def __init__(self, *, attend_current: bool = False, remainder: bool = False) -> None:
        super().__init__()
        flag("attend_current", attend_current)
        flag("remainder", remainder)
        self.attend_current, self.remainder = attend_current, remainder

    def weights(self, logits: Tensor, tokens: Tokens) -> Tensor:
        assert tokens.visible is not None
        own = tokens.q_positions[:, None, :, None] == tokens.k_positions[:, None, None, :]
        seen = tokens.visible if self.attend_current else tokens.visible & ~own
        passed = F.logsigmoid(-logits) * seen  # log of what each key leaves
        left = passed.flip(-1).cumsum(-1).flip(-1)  # behind each key
        weights = (logits + left).masked_fill(~seen, -torch.inf).exp()  # log sigmoid(z) = z + log(1 - sigmoid(z))
        if not self.remainder:
            return weights
        return weights + (own & tokens.visible) * left[..., :1].exp()
