"""What the hidden states of the tokens decide, made once for each token."""

import torch
import torch.nn.functional as F
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
    new, positions, documents = hidden.shape[1], mask.k_positions, mask.k_documents
    if mask.key_padding is not None:
        hidden = hidden.masked_fill(mask.key_padding[..., None], 0.0)
    if cache is not None and cache.hidden is not None and cache.k_positions is not None:
        start = cache.k_positions.shape[1] - cache.hidden.shape[1]
        hidden = torch.cat((cache.hidden, hidden), dim=1)
        positions = _behind(cache.k_positions[:, start:], positions)
        if documents is not None and cache.k_documents is not None:
            documents = _behind(cache.k_documents[:, start:], documents)
    gates = encoding.gates(hidden, _places(positions, documents, encoding.reach) if encoding.reach else positions)
    length = hidden.shape[1]
    if gates is not None:
        gates = gates[:, :, length - new :]
        if mask.key_padding is not None:
            gates = gates.masked_fill(mask.key_padding[:, None, :, None], 0.0)
    return gates, hidden[:, max(0, length - encoding.reach) :]


def _behind(earlier: Tensor, tokens: Tensor) -> Tensor:
    return torch.cat((earlier, tokens.expand(len(earlier), -1)), dim=1)


def _places(positions: Tensor, documents: Tensor | None, reach: int) -> Tensor:
    """Numbers that rise by one along a document, whatever its positions, and by more than ``reach`` to the next one."""
    follows = positions.diff() > 0
    if documents is not None:
        follows = follows & (documents.diff() == 0)
    return F.pad(torch.where(follows, 1, 1 + reach), (1, 0)).cumsum(-1)
