"""q rotated, k rotated into a paged cache and v beside it, each after a norm if it has one, in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...rotation import Rotation
from ..cache import Cache
from ..norm import Norm
from ..order import Order
from . import launch
from .device import load_pairs, load_rest, load_tables, read_pairs, rotated, store_pairs, store_rest, widened
from .heads import float8, float8_parts, head_of, normed, one_more, rest_of
from .launch import about, ahead, axes_of, enough_for, in_memory, in_units, launched, of_norm, of_tables, programs_of

MOST_VALUES = 8192  # of all rows of one head of v in a program
# Sizes and strides, which serving changes from call to call.
CHANGING = [
    "slots", "eps", "v_eps", "rows", "tokens", "of_q", "of_k", "q_groups", "k_groups", "block_size", "places",
    "at_batches", "k_scale_step", "v_scale_step", "q_batch", "q_head", "q_token", "q_step", "k_batch", "k_head",
    "k_token", "k_step", "v_batch", "v_head", "v_token", "v_step", "y_batch", "y_head", "y_token", "y_step",
    "kc_block", "kc_head", "kc_place", "kc_step", "vc_block", "vc_head", "vc_place", "vc_step", "at_batch",
    "at_head", "at_token", "at_step",
]  # fmt: skip


@triton.jit
def move_heads(
    x, y, x_head, x_step, y_head, y_step, c, s, cos, sin, at_row, at_head, at_step, at_weight, scale, scale_step, eps,
    head, heads, row, row_ok, rows, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr, NORM: tl.constexpr,
    FLOAT8: tl.constexpr, PER_HEAD: tl.constexpr, ROUNDED: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, PART: tl.constexpr, REST_FIRST: tl.constexpr,
    HEADS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Some heads of q or of k of one tile, ``AHEAD`` of them loaded before the first is stored."""
    dtype: tl.constexpr = x.dtype.element_ty
    weight = ()
    if WEIGHTED:
        all_ok = tl.full([1, 1], True, tl.int1)
        pairs = load_pairs(at_weight + FIRST, 1, all_ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
        weight = head_of(pairs, load_rest(at_weight + REST_FIRST, 1, all_ok, REST, PART))
        if OFFSET:
            weight = one_more(weight)
    for first in tl.static_range(0, HEADS, AHEAD):
        pairs, rests = (), ()
        for i in tl.static_range(first, min(first + AHEAD, HEADS)):
            ok = (row_ok & (row < tl.where(head + i < heads, rows, 0)))[:, None]
            read = read_pairs(x + FIRST * x_step, x_step, ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
            pairs += (read,)  # type: ignore[assignment]  # it grows in a loop that Triton unrolls
            passing = load_rest(x + REST_FIRST * x_step, x_step, ok, REST, PART)
            rests += (passing,)  # type: ignore[assignment]
            x += x_head
        for i in tl.static_range(first, min(first + AHEAD, HEADS)):
            ok = (row_ok & (row < tl.where(head + i < heads, rows, 0)))[:, None]
            if PER_HEAD:
                c, s = load_tables(cos, sin, at_row + (head + i) * at_head, at_step, ok, PAIRS, WIDE)
            a, b = widened(pairs[i - first], READ_TWINS)
            rest = rests[i - first]  # type: ignore[var-annotated]
            if NORM:
                whole = normed(head_of((a, b), rest), weight, 2 * PAIRS + REST, eps, dtype, NORM)
                a, b, rest = whole[0], whole[1], rest_of(whole)
            a, b = rotated(a, b, c, s, dtype, ROUNDED)
            if FLOAT8:
                if ROUNDED:
                    a, b = a.to(dtype).to(tl.float32), b.to(dtype).to(tl.float32)
                by = tl.load(scale + tl.minimum(head + i, heads - 1) * scale_step)
                a, b = float8(tl.div_rn(a, by)), float8(tl.div_rn(b, by))
                rest = float8_parts(rest, by)
            store_pairs(y + FIRST * y_step, y_step, ok, a, b, PAIRS, WIDE, BLOCKS, WRITE_TWINS)
            store_rest(y + REST_FIRST * y_step, y_step, ok, rest, REST, PART)
            y += y_head


@triton.jit
def move_values(
    x, y, x_head, x_step, y_head, y_step, at_weight, scale, scale_step, eps, head, heads, row_ok,
    WEIGHTED: tl.constexpr, OFFSET: tl.constexpr, NORM: tl.constexpr, FLOAT8: tl.constexpr, CHANNELS: tl.constexpr,
    WIDE: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Some heads of v of one tile, as they are or after their norm."""
    dtype: tl.constexpr = x.dtype.element_ty
    channel = tl.arange(0, WIDE)[None, :].to(tl.int64)
    x += channel * x_step
    y += channel * y_step
    for i in tl.static_range(HEADS):
        ok = (row_ok & (head + i < heads))[:, None] & (channel < CHANNELS)
        v = tl.load(x, mask=ok, other=0)
        if NORM:
            whole = v.to(tl.float32)
            mean = tl.div_rn(tl.sum(whole * whole, axis=1), CHANNELS)
            whole = whole * tl.div_rn(1.0, tl.sqrt_rn(mean + eps))[:, None]
            if NORM == 3:
                whole = whole.to(dtype).to(tl.float32)
            if WEIGHTED:
                weight = tl.load(at_weight + channel, mask=channel < CHANNELS, other=0).to(tl.float32)
                whole = whole * ((1 + weight) if OFFSET else weight)
            if NORM != 1 and FLOAT8:
                whole = whole.to(dtype).to(tl.float32)
            v = whole
        if FLOAT8:
            v = float8(tl.div_rn(v.to(tl.float32), tl.load(scale + tl.minimum(head + i, heads - 1) * scale_step)))
        tl.store(y, v.to(y.dtype.element_ty), mask=ok)
        x += x_head
        y += y_head


@triton.jit(do_not_specialize=CHANGING)
def cache_heads(
    q, k, v, y, k_cache, v_cache, cos, sin, q_weight, k_weight, v_weight, k_scale, v_scale, slots,
    eps, v_eps, rows, tokens, of_q, of_k, q_groups, k_groups, block_size, places, at_batches,
    k_scale_step, v_scale_step,
    q_batch, q_head, q_token, q_step, k_batch, k_head, k_token, k_step, v_batch, v_head, v_token, v_step,
    y_batch, y_head, y_token, y_step, kc_block, kc_head, kc_place, kc_step, vc_block, vc_head, vc_place, vc_step,
    at_batch, at_head, at_token, at_step,
    NORM: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr,
    V_NORM: tl.constexpr, V_WEIGHTED: tl.constexpr, V_OFFSET: tl.constexpr,
    PER_HEAD: tl.constexpr, ROUNDED: tl.constexpr, CHANNELS: tl.constexpr, CHANNELS_WIDE: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, PART: tl.constexpr, REST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, AHEAD: tl.constexpr, OF: tl.constexpr, AT_OF: tl.constexpr,
    UNIT: tl.constexpr, AT_UNIT: tl.constexpr,
):  # fmt: skip
    """Program ``(tile, group)`` has ``HEADS`` heads of q, of k or of v, in ``ROWS`` rows; ``slots`` has one per row.

    A slot is ``block * block_size + place``; what is none of the ``places`` of the cache is written nowhere. A cache of
    bytes is float8. Strides count ``OF`` channels, those of tables ``AT_OF``; of channels and pairs they count one.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = row < rows
    token, batch = (row % tokens).to(tl.int64), (row // tokens).to(tl.int64)
    at_row = (token * at_token + batch % at_batches * at_batch) * AT_OF
    of_head = tl.full([], 0, tl.int64) + at_head * AT_OF
    if AT_UNIT:
        at_step = 1
    if UNIT:
        q_step, k_step, v_step, y_step, kc_step, vc_step = 1, 1, 1, 1, 1, 1
    group = tl.program_id(1)
    if group < q_groups:  # names of their own in each branch: what two branches assign must have one type
        q_c, q_s = (), ()
        if not PER_HEAD:
            q_c, q_s = load_tables(cos, sin, at_row, at_step, row_ok[:, None], PAIRS, WIDE)
        of_q_head = group.to(tl.int64) * HEADS
        q_from = q + of_q_head * (q_head.to(tl.int64) * OF) + ((token * q_token + batch * q_batch) * OF)[:, None]
        q_to = y + of_q_head * (y_head.to(tl.int64) * OF) + ((token * y_token + batch * y_batch) * OF)[:, None]
        move_heads(
            q_from, q_to, q_head.to(tl.int64) * OF, q_step, y_head.to(tl.int64) * OF, y_step, q_c, q_s, cos, sin,
            at_row, of_head, at_step, q_weight, cos, 0, eps, of_q_head, of_q, row, row_ok, rows, WEIGHTED, OFFSET, NORM,
            False, PER_HEAD, ROUNDED, PAIRS, WIDE, BLOCKS, READ_TWINS, WRITE_TWINS, FIRST, REST, PART, REST_FIRST,
            HEADS, AHEAD,
        )  # fmt: skip
    else:
        slot = tl.load(slots + row, mask=row_ok, other=-1).to(tl.int64)
        kept = row_ok & (slot >= 0) & (slot < places)
        block, place = slot // block_size, slot % block_size
        if group < q_groups + k_groups:
            k_c, k_s = (), ()
            if not PER_HEAD:
                k_c, k_s = load_tables(cos, sin, at_row, at_step, kept[:, None], PAIRS, WIDE)
            of_k_head = (group - q_groups).to(tl.int64) * HEADS
            k_from = k + of_k_head * (k_head.to(tl.int64) * OF) + ((token * k_token + batch * k_batch) * OF)[:, None]
            k_to = (
                k_cache
                + of_k_head * (kc_head.to(tl.int64) * OF)
                + ((block * kc_block + place * kc_place) * OF)[:, None]
            )
            move_heads(
                k_from, k_to, k_head.to(tl.int64) * OF, k_step, kc_head.to(tl.int64) * OF, kc_step, k_c, k_s, cos, sin,
                at_row, of_head, at_step, k_weight, k_scale, k_scale_step, eps, of_k_head, of_k, row, kept, rows,
                WEIGHTED, OFFSET, NORM, k_cache.dtype.element_ty == tl.uint8, PER_HEAD, ROUNDED, PAIRS, WIDE, BLOCKS,
                READ_TWINS, WRITE_TWINS, FIRST, REST, PART, REST_FIRST, HEADS, AHEAD,
            )  # fmt: skip
        else:
            of_v_head = (group - q_groups - k_groups).to(tl.int64) * HEADS
            v_from = v + of_v_head * (v_head.to(tl.int64) * OF) + ((token * v_token + batch * v_batch) * OF)[:, None]
            v_to = (
                v_cache
                + of_v_head * (vc_head.to(tl.int64) * OF)
                + ((block * vc_block + place * vc_place) * OF)[:, None]
            )
            move_values(
                v_from, v_to, v_head.to(tl.int64) * OF, v_step, vc_head.to(tl.int64) * OF, vc_step, v_weight, v_scale,
                v_scale_step, v_eps, of_v_head, of_k, kept, V_WEIGHTED, V_OFFSET, V_NORM,
                v_cache.dtype.element_ty == tl.uint8, CHANNELS, CHANNELS_WIDE, HEADS,
            )  # fmt: skip


def rotate_into_cache(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, rotation: Rotation, order: Order, cache: Cache, rounded: bool,
    norm: Norm | None = None, v_norm: Norm | None = None,
) -> None:  # fmt: skip
    """Writes q, rotated, to y, which may be q itself; k and v to the cache. k has the batch of q."""
    q, k, v = (in_memory(x, order) for x in (q, k, v))
    *_, batch, of_q, tokens = axes_of(q, order)
    of_k, rows, channels = k.shape[order.heads], batch * tokens, triton.next_power_of_2(v.shape[-1])
    constants = about(rotation.layout, launch.TILE)
    most = max(1, min(constants["ROWS"], MOST_VALUES // channels))
    cut = programs_of(rows, of_q, of_k, most, enough_for(q.device))
    if 0 in cut.grid:
        return
    angles = of_tables(rotation.cos, rotation.sin, rotation.per_head)
    strides = [stride for x in (q, k, v, y) for stride in axes_of(x, order)[:4]]
    strides, unit = in_units([*strides, *(x.stride(axis) for x in (cache.k, cache.v) for axis in (0, 2, 1, 3))])
    at_strides, at_unit = in_units(angles.strides)
    (q_weight, k_weight, eps), of_qk = of_norm(norm)
    (v_weight, _, v_eps), of_v = of_norm(v_norm)
    scales = [None if s is None else s.contiguous() for s in cache[3:]]
    caches = [x if s is None else x.view(torch.uint8) for x, s in zip((cache.k, cache.v), scales, strict=True)]
    tensors = (
        q, k, v, y, *caches, *angles.tensors[2:], q_weight, k_weight, v_weight, *scales, cache.slots.contiguous()
    )  # fmt: skip
    numbers = (
        eps, v_eps, rows, tokens, of_q, of_k, cut.q_groups, cut.k_groups, cache.k.shape[1],
        cache.k.shape[0] * cache.k.shape[1], angles.batches, *(int(s is not None and s.numel() > 1) for s in scales),
        *strides, *at_strides,
    )  # fmt: skip
    constants = constants | of_qk | {f"V_{name}": value for name, value in of_v.items()}
    constants |= {
        "PER_HEAD": angles.per_head, "ROUNDED": rounded, "CHANNELS": v.shape[-1], "CHANNELS_WIDE": channels,
        "ROWS": cut.rows, "HEADS": cut.heads, "AHEAD": ahead(rotation.layout, cut), "OF": unit, "AT_OF": at_unit,
        "UNIT": set(strides[3::4]) == {1}, "AT_UNIT": at_strides[3] == 1,
    }  # fmt: skip
    launched(cache_heads, cut._replace(k_groups=2 * cut.k_groups), tensors, numbers, constants)
    torch.autograd.graph.increment_version([x for x in (cache.k, cache.v) if not x.is_inference()])
