"""q rotated, k rotated into a paged cache and v copied beside it, in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...rotation import Rotation
from ..cache import Cache
from ..order import Order
from . import launch
from .device import load_pairs, load_rest, load_tables, rotated, store_pairs, store_rest
from .launch import about, axes_of, enough_for, in_memory, of_tables, on_device_of, programs_of


@triton.jit
def cache_heads(
    q, k, v, y, k_cache, v_cache, slots, cos, sin,
    rows, tokens, of_q, of_k, q_groups, k_groups, block_size, places, at_batches,
    q_batch, q_head, q_token, q_step, k_batch, k_head, k_token, k_step, v_batch, v_head, v_token, v_step,
    y_batch, y_head, y_token, y_step, kc_block, kc_head, kc_place, kc_step, vc_block, vc_head, vc_place, vc_step,
    at_batch, at_head, at_token, at_step,
    PER_HEAD: tl.constexpr, ROUNDED: tl.constexpr, CHANNELS: tl.constexpr, CHANNELS_WIDE: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, PART: tl.constexpr, REST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Program ``(tile, group)`` has ``HEADS`` heads of q, of k or of v, in ``ROWS`` rows; ``slots`` has one per row.

    A slot is ``block * block_size + place``; what is none of the ``places`` of the cache is written nowhere.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = row < rows
    token, batch = (row % tokens).to(tl.int64), (row // tokens).to(tl.int64)
    group = tl.program_id(1)
    is_q, is_v = group < q_groups, group >= q_groups + k_groups
    head = (group - tl.where(is_q, 0, tl.where(is_v, q_groups + k_groups, q_groups))).to(tl.int64) * HEADS
    heads = tl.where(is_q, of_q, of_k)

    slot = tl.load(slots + row, mask=row_ok, other=-1).to(tl.int64)
    goes_to = tl.where(is_q, 0, slot)
    row_ok = row_ok & (goes_to >= 0) & (goes_to < tl.where(is_q, 1, places))
    block, place = slot // block_size, slot % block_size
    if is_v:
        of_v = tl.arange(0, CHANNELS_WIDE)[None, :].to(tl.int64)
        v_at = v + head * v_head + (token * v_token + batch * v_batch)[:, None] + of_v * v_step
        v_to = v_cache + head * vc_head + (block * vc_block + place * vc_place)[:, None] + of_v * vc_step
        for i in tl.static_range(HEADS):
            v_ok = (row_ok & (row < tl.where(head + i < heads, rows, 0)))[:, None] & (of_v < CHANNELS)
            tl.store(v_to, tl.load(v_at, mask=v_ok, other=0), mask=v_ok)
            v_at += v_head
            v_to += vc_head
    else:
        at_row = token * at_token + batch % at_batches * at_batch
        x_head, y_head_ = tl.where(is_q, q_head, k_head).to(tl.int64), tl.where(is_q, y_head, kc_head).to(tl.int64)
        x_row = token * tl.where(is_q, q_token, k_token) + batch * tl.where(is_q, q_batch, k_batch)
        # strides are chosen, not rows: a choice among rows would not be known to lie at multiples of 16 bytes
        y_row = tl.where(is_q, token, place) * tl.where(is_q, y_token, kc_place)
        y_row += tl.where(is_q, batch, block) * tl.where(is_q, y_batch, kc_block)
        x = tl.where(is_q, q, k) + head * x_head + x_row[:, None]
        to = tl.where(is_q, y, k_cache) + head * y_head_ + y_row[:, None]
        x_step = tl.where(is_q, q_step, k_step).to(tl.int64)
        y_step_ = tl.where(is_q, y_step, kc_step).to(tl.int64)
        dtype: tl.constexpr = q.dtype.element_ty
        if not PER_HEAD:
            c, s = load_tables(cos, sin, at_row, at_step, row_ok[:, None], PAIRS, WIDE)
        for i in tl.static_range(HEADS):
            ok = (row_ok & (row < tl.where(head + i < heads, rows, 0)))[:, None]
            if PER_HEAD:
                c, s = load_tables(cos, sin, at_row + (head + i) * at_head, at_step, ok, PAIRS, WIDE)
            a, b = load_pairs(x + FIRST * x_step, x_step, ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
            a, b = rotated(a, b, c, s, dtype, ROUNDED)
            rest = load_rest(x + REST_FIRST * x_step, x_step, ok, REST, PART)
            store_rest(to + REST_FIRST * y_step_, y_step_, ok, rest, REST, PART)
            store_pairs(to + FIRST * y_step_, y_step_, ok, a, b, PAIRS, WIDE, BLOCKS, WRITE_TWINS)
            x += x_head
            to += y_head_


def rotate_into_cache(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, rotation: Rotation, order: Order, cache: Cache, rounded: bool
) -> None:
    """Writes q, rotated, to y, which may be q itself; k and v to the cache. k has the batch of q."""
    q, k, v = (in_memory(x, order) for x in (q, k, v))
    *_, batch, of_q, tokens = axes_of(q, order)
    of_k, rows, constants = k.shape[order.heads], batch * tokens, about(rotation.layout, launch.TILE)
    cut = programs_of(rows, of_q, of_k, constants["ROWS"], enough_for(q.device))
    if 0 in cut.grid:
        return
    angles = of_tables(rotation.cos, rotation.sin, rotation.per_head)
    strides = [stride for x in (q, k, v, y) for stride in axes_of(x, order)[:4]]
    strides += [x.stride(axis) for x in (cache.k, cache.v) for axis in (0, 2, 1, 3)]
    with on_device_of(q):
        cache_heads[cut.tiles, cut.q_groups + 2 * cut.k_groups](
            q, k, v, y, cache.k, cache.v, cache.slots.contiguous(), *angles.tensors[2:],
            rows, tokens, of_q, of_k, cut.q_groups, cut.k_groups, cache.k.shape[1], cache.k.shape[0] * cache.k.shape[1],
            angles.batches, *strides, *angles.strides,
            PER_HEAD=angles.per_head, ROUNDED=rounded, CHANNELS=v.shape[-1],
            CHANNELS_WIDE=triton.next_power_of_2(v.shape[-1]), **constants | {"ROWS": cut.rows, "HEADS": cut.heads},
            num_warps=cut.warps, enable_fp_fusion=False,
        )  # fmt: skip
    torch.autograd.graph.increment_version([x for x in (cache.k, cache.v) if not x.is_inference()])
