"""Rotated keys in a KV cache, in plain PyTorch: what a kernel that writes them there in one pass means."""

from typing import NamedTuple

import torch
from torch import Tensor

from .order import Order

FLOAT8 = torch.float8_e4m3fn
MOST = 448.0  # the largest number in it


class Cache(NamedTuple):
    """Where the heads of k and v go: caches ``[blocks, block size, heads, channels]``, and a slot for every token.

    ``slots`` ``[(batch,) tokens]`` count through all blocks, ``block * block size + place``; -1 goes nowhere. A scale,
    float32 ``[1]`` or ``[heads]``, is what a number of a float8 cache is multiplied by when it is read.
    """

    k: Tensor
    v: Tensor
    slots: Tensor
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None

    def write(self, k: Tensor, v: Tensor, order: Order) -> None:
        """Writes k and v, whose axes are in ``order``, to their slots; in float32 where a cache is float8."""
        slots = self.slots.flatten()
        for cache, x, scale in ((self.k, k, self.k_scale), (self.v, v, self.v_scale)):
            rows = _rows(x, order)
            if scale is not None:  # bytes, because torch cannot index float8
                cache, rows = cache.view(torch.uint8), float8(rows, scale.unsqueeze(-1)).view(torch.uint8)
            _write(cache, rows, slots)


def float8(x: Tensor, scale: Tensor) -> Tensor:
    """``x / scale`` in float8 (e4m3fn): rounded once, to nearest even; what is beyond its largest number becomes that.

    >>> float8(torch.tensor([1.0, -3.3, 1e9]), torch.tensor(2.0)).float().tolist()
    [0.5, -1.625, 448.0]
    """
    return (x / scale).clamp(-MOST, MOST).to(FLOAT8)


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
