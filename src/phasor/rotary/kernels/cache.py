"""Rotated keys in a KV cache, in plain PyTorch: what a kernel that writes them there in one pass means."""

from typing import NamedTuple

import torch
from torch import Tensor

from .order import Order


class Cache(NamedTuple):
    """Where the heads of k and v go: caches ``[blocks, block size, heads, channels]``, and a slot for every token.

    ``slots`` ``[(batch,) tokens]`` count through all blocks, ``block * block size + place``; -1 goes nowhere.
    """

    k: Tensor
    v: Tensor
    slots: Tensor

    def write(self, k: Tensor, v: Tensor, order: Order) -> None:
        """Writes k and v, whose axes are in ``order``, to their slots."""
        slots = self.slots.flatten()
        _write(self.k, _rows(k, order), slots)
        _write(self.v, _rows(v, order), slots)


def _rows(x: Tensor, order: Order) -> Tensor:
    """``[tokens of all batches, heads, channels]``, batch by batch."""
    if order.batch is not None:
        x = x.transpose(order.batch, order.tokens)
    elif order.heads == -3:
        x = x.transpose(-3, -2)
    return x.flatten(0, -3)


def _write(cache: Tensor, rows: Tensor, slots: Tensor) -> None:
    """Write rows to their slots, in a constant number of operations and without reading anything back from a device.

    Padding (slot -1) repeats the write of another token; where all are padding, it writes what is there already.
    """
    if not rows.numel() or not cache.numel():
        return
    stays = slots >= 0
    source = torch.where(stays, torch.arange(slots.shape[0], device=slots.device), stays.long().argmax())
    to = slots[source].clamp(min=0).long()
    at = to // cache.shape[1], to % cache.shape[1]
    cache[at] = torch.where(stays.any(), rows[source], cache[at])
