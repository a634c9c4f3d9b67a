"""q rotated, k rotated into a paged cache and v beside it, each after a norm if it has one, in one launch."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...rotation import Rotation
from ..cache import Cache
from ..norm import Norm
from ..order import Order
from . import launch
from .arguments import (
    CacheHeads,
    CacheLayout,
    CacheNorms,
    CacheSizes,
    CacheWeights,
    Cut,
    Reading,
    Tables,
)
from .device import load_rest, load_tables, read_pairs, rotated, store_pairs, store_rest, widened
from .heads import float8, float8_parts, head_of, normed, rest_of, weight_at
from .launch import about, ahead, axes_of, enough_for, in_memory, in_units, launched, of_norm, of_tables, programs_of

MOST_VALUES = 8192  # of all rows of one head of v in a program


class Lane(NamedTuple):
    """Where a program reads or writes its first head, and how far it is to the next one, and to the next channel."""

    at: Any
    head: Any
    step: Any


class Turn(NamedTuple):
    """Cosines and sines, formed once; or, of tables per head, where those of a row lie."""

    c: Any
    s: Any
    tables: Any
    row: Any
    head: Any
    step: Any


class Tile(NamedTuple):
    """Its rows, those of them that are there, and how many there are; its first head, and how many there are."""

    row: Any
    ok: Any
    rows: Any
    head: Any
    heads: Any


class Scale(NamedTuple):
    """Of float8: the address, and how far it is to the next head's."""

    at: Any
    step: Any


@triton.jit
def move_heads(
    source, target, turn, at_weight, scale, eps, tile, LAYOUT: tl.constexpr, NORM: tl.constexpr, FLOAT8: tl.constexpr,
    READ: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Some heads of q or of k of one tile, some of them loaded before the first is stored."""
    x, y, c, s = source.at, target.at, turn.c, turn.s
    dtype: tl.constexpr = x.dtype.element_ty
    weight = ()
    if NORM.weighted:
        weight = weight_at(at_weight, LAYOUT, NORM)
    count: tl.constexpr = CUT.heads
    ahead: tl.constexpr = CUT.ahead
    for first in tl.static_range(0, count, ahead):
        pairs, rests = (), ()
        for i in tl.static_range(first, first + ahead if first + ahead < count else count):
            ok = (tile.ok & (tile.row < tl.where(tile.head + i < tile.heads, tile.rows, 0)))[:, None]
            pairs += (read_pairs(x + LAYOUT.first * source.step, source.step, ok, LAYOUT, LAYOUT.read_twins),)
            rests += (load_rest(x + LAYOUT.rest_first * source.step, source.step, ok, LAYOUT),)
            x += source.head
        for i in tl.static_range(first, first + ahead if first + ahead < count else count):
            ok = (tile.ok & (tile.row < tl.where(tile.head + i < tile.heads, tile.rows, 0)))[:, None]
            if READ.per_head:
                at_head = turn.row + (tile.head + i) * turn.head
                c, s = load_tables(turn.tables.cos, turn.tables.sin, at_head, turn.step, ok, LAYOUT)
            a, b = widened(pairs[i - first], LAYOUT.read_twins)
            rest = rests[i - first]
            if NORM.rounds:
                whole = normed(head_of((a, b), rest), weight, 2 * LAYOUT.pairs + LAYOUT.rest, eps, dtype, NORM.rounds)
                a, b, rest = whole[0], whole[1], rest_of(whole)
            a, b = rotated(a, b, c, s, dtype, READ.rounded)
            if FLOAT8:
                if READ.rounded:
                    a, b = a.to(dtype).to(tl.float32), b.to(dtype).to(tl.float32)
                by = tl.load(scale.at + tl.minimum(tile.head + i, tile.heads - 1) * scale.step)
                a, b = float8(tl.div_rn(a, by)), float8(tl.div_rn(b, by))
                rest = float8_parts(rest, by)
            store_pairs(y + LAYOUT.first * target.step, target.step, ok, a, b, LAYOUT, LAYOUT.write_twins)
            store_rest(y + LAYOUT.rest_first * target.step, target.step, ok, rest, LAYOUT)
            y += target.head


@triton.jit
def move_values(
    source, target, at_weight, scale, eps, tile, NORM: tl.constexpr, FLOAT8: tl.constexpr, CHANNELS: tl.constexpr,
    WIDE: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Some heads of v of one tile, as they are or after their norm."""
    dtype: tl.constexpr = source.at.dtype.element_ty
    channel = tl.arange(0, WIDE)[None, :].to(tl.int64)
    x = source.at + channel * source.step
    y = target.at + channel * target.step
    for i in tl.static_range(HEADS):
        ok = (tile.ok & (tile.head + i < tile.heads))[:, None] & (channel < CHANNELS)
        v = tl.load(x, mask=ok, other=0)
        if NORM.rounds:
            whole = v.to(tl.float32)
            mean = tl.div_rn(tl.sum(whole * whole, axis=1), CHANNELS)
            whole = whole * tl.div_rn(1.0, tl.sqrt_rn(mean + eps))[:, None]
            if NORM.rounds == 3:
                whole = whole.to(dtype).to(tl.float32)
            if NORM.weighted:
                weight = tl.load(at_weight + channel, mask=channel < CHANNELS, other=0).to(tl.float32)
                whole = whole * ((1 + weight) if NORM.offset else weight)
            if NORM.rounds != 1 and FLOAT8:
                whole = whole.to(dtype).to(tl.float32)
            v = whole
        if FLOAT8:
            by = tl.load(scale.at + tl.minimum(tile.head + i, tile.heads - 1) * scale.step)
            v = float8(tl.div_rn(v.to(tl.float32), by))
        tl.store(y, v.to(y.dtype.element_ty), mask=ok)
        x += source.head
        y += target.head


@triton.jit
def lane(at, strides, head, row, place, CUT: tl.constexpr):
    """From a head on, in some rows: of tokens and batches, or of places and blocks."""
    to_head = strides.head.to(tl.int64) * CUT.unit
    at = at + head * to_head + ((place * strides.token + row * strides.batch) * CUT.unit)[:, None]
    return Lane(at, to_head, 1 if CUT.adjacent else strides.step)


@triton.jit(do_not_specialize=["slots"])
def cache_heads(
    heads, tables, weights, slots, eps, sizes, strides, at_strides, LAYOUT: tl.constexpr, NORMS: tl.constexpr,
    READ: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Program ``(tile, group)`` has some heads of q, of k or of v, in some rows; ``slots`` has one per row.

    A slot is ``block * block_size + place``; what is none of the places of the cache is written nowhere. A cache of
    bytes is float8. ``eps``: of q and k, and of v.
    """
    lies: tl.constexpr = LAYOUT.qk
    norm: tl.constexpr = NORMS.qk
    v_norm: tl.constexpr = NORMS.v
    row = tl.program_id(0) * CUT.rows + tl.arange(0, CUT.rows)
    row_ok = row < sizes.rows
    token, batch = (row % sizes.tokens).to(tl.int64), (row // sizes.tokens).to(tl.int64)
    at_row = (token * at_strides.token + batch % sizes.at_batches * at_strides.batch) * READ.unit
    of_head = tl.full([], 0, tl.int64) + at_strides.head * READ.unit
    at_step = 1 if READ.adjacent else at_strides.step
    group = tl.program_id(1)
    if group < sizes.q_groups:  # names of their own in each branch: what two branches assign must have one type
        q_c, q_s = (), ()
        if not READ.per_head:
            q_c, q_s = load_tables(tables.cos, tables.sin, at_row, at_step, row_ok[:, None], lies)
        q_tile = Tile(row, row_ok, sizes.rows, group.to(tl.int64) * CUT.heads, sizes.of_q)
        move_heads(
            lane(heads.q, strides.q, q_tile.head, batch, token, CUT),
            lane(heads.y, strides.y, q_tile.head, batch, token, CUT), Turn(q_c, q_s, tables, at_row, of_head, at_step),
            weights.q, (), eps[0], q_tile, lies, norm, False, READ, CUT,
        )  # fmt: skip
    else:
        slot = tl.load(slots + row, mask=row_ok, other=-1).to(tl.int64)
        kept = row_ok & (slot >= 0) & (slot < sizes.places)
        block, place = slot // sizes.block_size, slot % sizes.block_size
        if group < sizes.q_groups + sizes.k_groups:
            k_c, k_s = (), ()
            if not READ.per_head:
                k_c, k_s = load_tables(tables.cos, tables.sin, at_row, at_step, kept[:, None], lies)
            of_k_head = (group - sizes.q_groups).to(tl.int64) * CUT.heads
            move_heads(
                lane(heads.k, strides.k, of_k_head, batch, token, CUT),
                lane(heads.k_cache, strides.k_cache, of_k_head, block, place, CUT),
                Turn(k_c, k_s, tables, at_row, of_head, at_step), weights.k, Scale(weights.k_scale, sizes.k_scale),
                eps[0], Tile(row, kept, sizes.rows, of_k_head, sizes.of_k), lies, norm,
                heads.k_cache.dtype.element_ty == tl.uint8, READ, CUT,
            )  # fmt: skip
        else:
            of_v_head = (group - sizes.q_groups - sizes.k_groups).to(tl.int64) * CUT.heads
            move_values(
                lane(heads.v, strides.v, of_v_head, batch, token, CUT),
                lane(heads.v_cache, strides.v_cache, of_v_head, block, place, CUT), weights.v,
                Scale(weights.v_scale, sizes.v_scale), eps[1], Tile(row, kept, sizes.rows, of_v_head, sizes.of_k),
                v_norm, heads.v_cache.dtype.element_ty == tl.uint8, LAYOUT.channels, LAYOUT.wide, CUT.heads,
            )  # fmt: skip


def rotate_into_cache(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, rotation: Rotation, order: Order, cache: Cache, rounded: bool,
    norm: Norm | None = None, v_norm: Norm | None = None,
) -> None:  # fmt: skip
    """Writes q, rotated, to y, which may be q itself; k and v to the cache. k has the batch of q."""
    q, k, v = (in_memory(x, order) for x in (q, k, v))
    *_, batch, of_q, tokens = axes_of(q, order)
    of_k, rows, channels = k.shape[order.heads], batch * tokens, triton.next_power_of_2(v.shape[-1])
    lies, tile_rows = about(rotation.layout, launch.TILE)
    most = max(1, min(tile_rows, MOST_VALUES // channels))
    programs = programs_of(rows, of_q, of_k, most, enough_for(q.device))
    if 0 in programs.grid:
        return
    angles = of_tables(rotation.cos, rotation.sin, rotation.per_head)
    of_pages = ([x.stride(axis) for axis in (0, 2, 1, 3)] for x in (cache.k, cache.v))
    strides, unit = in_units([*(axes_of(x, order)[:4] for x in (q, k, v, y)), *of_pages])
    (of_angles,), at_unit = in_units([angles.strides])
    weights, eps, kind = of_norm(norm)
    v_weights, v_eps, v_kind = of_norm(v_norm)
    scales = [None if s is None else s.contiguous() for s in cache[3:]]
    caches = [x if s is None else x.view(torch.uint8) for x, s in zip((cache.k, cache.v), scales, strict=True)]
    sizes = CacheSizes(
        rows, tokens, of_q, of_k, programs.q_groups, programs.k_groups, cache.k.shape[1],
        cache.k.shape[0] * cache.k.shape[1], angles.batches, *(int(s is not None and s.numel() > 1) for s in scales),
    )  # fmt: skip
    reading = Reading(
        0, angles.per_head, negate=False, scaled=False, rounded=rounded, repeats=True, unit=at_unit,
        adjacent=of_angles.step == 1,
    )  # fmt: skip
    cut = Cut(
        programs.rows, programs.heads, ahead(rotation.layout, programs), even=False, one_axis=False, unit=unit,
        adjacent=all(of.step == 1 for of in strides),
    )  # fmt: skip
    arguments = (
        CacheHeads(q, k, v, y, *caches), Tables(None, *angles.tensors[2:]),
        CacheWeights(*weights, v_weights.q, *scales), cache.slots.contiguous(), (eps, v_eps), sizes,
        CacheHeads(*strides), of_angles, CacheLayout(lies, v.shape[-1], channels), CacheNorms(kind, v_kind), reading,
        cut,
    )  # fmt: skip
    launched(cache_heads, programs._replace(k_groups=2 * programs.k_groups), arguments)
    torch.autograd.graph.increment_version([x for x in (cache.k, cache.v) if not x.is_inference()])
