"""The keys, values and gates of the tokens so far."""

from dataclasses import replace

import torch
from torch import Tensor

from .mask import Mask


class KVCache:
    """Keys (as the encoding rotated them), values, gates and the positions, padding and documents of their tokens.

    Every rotated key stays as it is for good, so a rotation that depends on length must be fixed beforehand
    (``Rotary(spec, seq_len=)``). ``hidden`` are the few states that the gates of the next token will need, too
    (`Encoding.reach`). Grows by concatenation. One cache per layer.

    >>> from phasor import attention
    >>> cache, q = KVCache(), torch.zeros(1, 1, 1, 2)
    >>> for t in range(3):
    ...     out = attention(q, q, q, q_positions=torch.tensor([t]), cache=cache)
    >>> len(cache), cache.k_positions.tolist()
    (3, [[0, 1, 2]])
    """

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.k_positions: Tensor | None = None
        self.key_padding: Tensor | None = None
        self.k_documents: Tensor | None = None
        self.gates: Tensor | None = None
        self.hidden: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.k is None else self.k.shape[-2]

    def append(self, k: Tensor, v: Tensor, mask: Mask, gates: Tensor | None = None) -> tuple[Tensor, Tensor, Mask]:
        """Add new tokens; return all keys, all values, and the mask of the new queries over all of them."""
        batch, rows = k.shape[0], mask.expand(k.shape[0])
        padding = k.new_zeros(batch, k.shape[-2], dtype=torch.bool) if rows.key_padding is None else rows.key_padding
        positions, documents = rows.k_positions, rows.k_documents
        if self.k is not None and self.v is not None:
            assert self.k_positions is not None and self.key_padding is not None
            if k.shape[:2] != self.k.shape[:2]:
                raise ValueError(
                    f"k must have the batch and heads of the cache, {list(self.k.shape[:2])}, got {list(k.shape[:2])}; "
                    "start a new KVCache for a new batch and for every layer"
                )
            if (documents is None) != (self.k_documents is None):
                raise ValueError("document_ids must be given for all tokens of a KVCache or for none; got both kinds")
            if (gates is None) != (self.gates is None):
                raise ValueError("hidden must be given for all tokens of a KVCache or for none; got both kinds")
            k, v = torch.cat((self.k, k), dim=-2), torch.cat((self.v, v), dim=-2)
            if gates is not None and self.gates is not None:
                gates = torch.cat((self.gates, gates), dim=-2)
            positions = torch.cat((self.k_positions, positions), dim=-1)
            padding = torch.cat((self.key_padding, padding), dim=-1)
            if documents is not None and self.k_documents is not None:
                documents = torch.cat((self.k_documents, documents), dim=-1)
        mask = replace(mask, k_positions=positions, key_padding=padding, k_documents=documents)
        mask.check_order()
        self.k, self.v, self.gates = k, v, gates
        self.k_positions, self.key_padding, self.k_documents = positions, padding, documents
        return k, v, mask
