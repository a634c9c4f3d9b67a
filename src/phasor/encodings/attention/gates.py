"""What the hidden states of the tokens decide, made once for each token."""

import torch
from torch import Tensor

from ..base import Encoding
from .cache import KVCache
from .mask import Mask


def gates_of(
    encoding: Encoding, hidden: Tensor | None, mask: Mask, cache: KVCache | None
) -> tuple[Tensor | None, Tensor | None]:
    """The gates of the new tokens, and the hidden states that those of the next tokens will need too.

    Both are zero at padding, so that it does not reach into the tokens of its row.
    """
    if hidden is None:
        return None, None
    new, positions = hidden.shape[1], mask.k_positions
    if mask.key_padding is not None:
        hidden = hidden.masked_fill(mask.key_padding[..., None], 0.0)
    if cache is not None and cache.hidden is not None and cache.k_positions is not None:
        earlier = cache.k_positions[:, cache.k_positions.shape[1] - cache.hidden.shape[1] :]
        hidden = torch.cat((cache.hidden, hidden), dim=1)
        positions = torch.cat((earlier, positions.expand(len(earlier), -1)), dim=1)
    gates = encoding.gates(hidden, positions)
    length = hidden.shape[1]
    if gates is not None:
        gates = gates[:, :, length - new :]
        if mask.key_padding is not None:
            gates = gates.masked_fill(mask.key_padding[:, None, :, None], 0.0)
    return gates, hidden[:, max(0, length - encoding.reach) :]
