"""Where the programs run: sizes and strides of q and k, and the grid, as numbers."""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import cdiv

from ...layout import Layout
from ..base import PLAIN
from ..norm import ROUNDINGS, Norm
from ..order import Order

TILE = 2048 if torch.version.hip else 1024  # pairs of one head that a program rotates at once: eight for each thread
HEADS = 8  # of q or of k that share the cosines of a program, at most
MOST_PARTS = 8  # as wide as the pairs, of the channels that pass


class Angles(NamedTuple):
    """What a launch needs to know of positions and steps, or of tables."""

    tensors: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]  # positions, steps, cos, sin
    strides: tuple[int, int, int, int]  # of batch, head and token; and of pairs, or, of positions, of axes
    batches: int
    axes: int = 0  # none: tables
    per_head: bool = False
    factor: float = 1.0


def of_positions(positions: tuple[Tensor, ...], steps: Tensor, factor: float) -> Angles:
    """Positions of each axis, views of one tensor, ``[(B,) S]``; steps ``[axes, P]``."""
    first = positions[0]
    apart = int(positions[1].storage_offset() - first.storage_offset()) if len(positions) > 1 else 0
    batched = first.ndim == 2 and first.shape[0] != 1
    strides = (first.stride(0) if batched else 0, 0, first.stride(-1), apart)
    return Angles((first, steps, None, None), strides, first.shape[0] if batched else 1, len(positions), factor=factor)


def of_tables(cos: Tensor, sin: Tensor, per_head: bool) -> Angles:
    """Tables ``[(B,) (H,) S, P]``."""
    cos, sin = cos.resolve_neg(), sin.resolve_neg()
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    batched = cos.ndim == 3 + per_head and cos.shape[0] != 1
    strides = (cos.stride(0) if batched else 0, cos.stride(-3) if per_head else 0, cos.stride(-2), cos.stride(-1))
    return Angles((None, None, cos, sin), strides, cos.shape[0] if batched else 1, per_head=per_head)


@lru_cache(maxsize=512)
def about(layout: Layout, tile: int) -> dict[str, Any]:
    """The constants of a layout, and how many rows make a tile of it."""
    rest = layout.head_dim - layout.rotary_dim
    wide, least = _power_of_two(layout.pairs), _power_of_two(rest / MOST_PARTS)
    return {
        "PAIRS": layout.pairs, "WIDE": wide, "BLOCKS": layout.blocks,
        "READ_TWINS": layout.interleaved, "WRITE_TWINS": layout.interleaved != layout.permuted,
        "FIRST": layout.turning.start, "REST": rest, "REST_FIRST": layout.passing.start,
        "PART": max(least, wide * (1 + layout.interleaved)), "ROWS": max(1, tile // max(wide, least)),
    }  # fmt: skip


def grid(rows: int, of_q: int, of_k: int, tile_rows: int) -> tuple[tuple[int, int], int, int]:
    """The numbers of programs, ``(tiles, groups)``; how many groups are of q; and how many heads are in a group."""
    most = max(1, of_q, of_k)
    heads = cdiv(most, cdiv(most, HEADS))  # groups of one size
    q_groups = cdiv(of_q, heads)
    return (cdiv(rows, tile_rows), q_groups + cdiv(of_k, heads)), q_groups, heads


def of_norm(norm: Norm | None) -> tuple[tuple[Tensor | None, Tensor | None, float], dict[str, Any]]:
    """Weights and eps; and constants: how it rounds, whether there are weights, and whether one is added to them."""
    if norm is None:
        return (None, None, 0.0), {"NORM": 0, "WEIGHTED": False, "OFFSET": False}
    of_q, of_k = (None if w is None else w.resolve_neg().contiguous() for w in norm[:2])
    rounded = ROUNDINGS.index(norm.rounding) + 1
    about_it = {"NORM": rounded, "WEIGHTED": of_q is not None, "OFFSET": norm.unit_offset}
    return (of_q, of_q if of_k is None else of_k, norm.eps), about_it


def axes_of(x: Tensor, order: Order) -> tuple[int, int, int, int, int, int, int]:
    """Strides of batch, head, token and channel; sizes of batch, heads and tokens. The batch must be one axis."""
    shape, strides = x.shape, x.stride()
    per, batch = batch_of(shape, strides, order)
    assert per is not None
    return per, strides[order.heads], strides[order.tokens], strides[-1], batch, shape[order.heads], shape[order.tokens]


def batch_of(shape: Any, strides: Any, order: Order) -> tuple[int | None, int]:
    """The stride of all batch axes taken as one, or None if no stride is; and its size."""
    if order.batch is not None:
        return strides[order.batch], shape[order.batch]
    stride, size = 0, 1
    for n, step in zip(reversed(shape[:-3]), reversed(strides[:-3]), strict=True):
        if n != 1 and size == 1:
            stride = step
        elif n != 1 and step != stride * size:
            return None, size
        size *= n
    return stride, size


def has_one_batch(x: Tensor, order: Order) -> bool:
    """Whether one stride describes all its batch axes."""
    return batch_of(x.shape, x.stride(), order)[0] is not None


def takes_writes(x: Tensor, order: Order) -> bool:
    """Whether a kernel can write to it as it lies."""
    return type(x) in PLAIN and not x.is_neg() and has_one_batch(x, order)


def in_memory(x: Tensor, order: Order) -> Tensor:
    """As a kernel can read it: a copy of what has a lazy sign, or no memory, or a batch that no stride describes."""
    x = x.clone() if x._is_zerotensor() else x.resolve_neg()
    return x if has_one_batch(x, order) else x.contiguous()


def on_device_of(q: Tensor) -> AbstractContextManager[Any]:
    return torch.cuda.device_of(q) if q.is_cuda else nullcontext()


def _power_of_two(n: float) -> int:
    return 1 << max(0, math.ceil(n) - 1).bit_length()
