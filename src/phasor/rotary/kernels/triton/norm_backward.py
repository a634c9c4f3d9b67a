"""The way back of RMSNorm and rotation: gradients of q and k in one launch, and of weights in sums of its programs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...rotation import Rotation
from ..norm import Norm
from ..order import Order
from . import launch
from .arguments import BackHeads, Sizes, Strides, Tables
from .device import load_pairs, load_rest, load_tables, rotated, store_pairs, store_rest
from .heads import dots, head_of, products, rest_of, root_of, sums, times, weight_at
from .launch import about, axes_of, enough_for, in_memory, of_norm, of_tables, on_device_of, programs_of


@triton.jit
def back_heads(
    heads, tables, of_programs, sizes, strides, at_strides, weights, eps, LAYOUT: tl.constexpr, NORM: tl.constexpr,
    PER_HEAD: tl.constexpr, PROGRAM: tl.constexpr,
):  # fmt: skip
    """As `rotate.rotate_heads`, back: from gradients ``of_y`` and ``of_z`` of the results to those of q and k.

    With ``n = x / root`` and ``u`` the gradient rotated back, a weight gets ``sum(u n)``, here that of a program, in
    ``of_programs`` ``[tiles, groups, head_dim]``; and x gets ``(u w - n mean(u w n)) / root``.
    ``PROGRAM``: how many rows and heads it has.
    """
    ROWS: tl.constexpr = PROGRAM[0]
    HEADS: tl.constexpr = PROGRAM[1]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = row < sizes.rows
    token, batch = (row % sizes.tokens).to(tl.int64), (row // sizes.tokens).to(tl.int64)
    at_row = token * at_strides.token + batch % sizes.at_batches * at_strides.batch

    group = tl.program_id(1)
    is_q = group < sizes.q_groups
    head = tl.where(is_q, group, group - sizes.q_groups).to(tl.int64) * HEADS
    head_count = tl.where(is_q, sizes.of_q, sizes.of_k)
    kept, kept_head, kept_step = lane(is_q, heads.q, heads.k, strides.q, strides.k, head, token, batch)
    up, up_head, up_step = lane(is_q, heads.of_y, heads.of_z, strides.of_y, strides.of_z, head, token, batch)
    down, down_head, down_step = lane(is_q, heads.of_q, heads.of_k, strides.of_q, strides.of_k, head, token, batch)

    if not PER_HEAD:
        c, s = load_tables(tables.cos, tables.sin, at_row, at_strides.step, row_ok[:, None], LAYOUT)
    if NORM.weighted:
        weight = weight_at(tl.where(is_q, weights.q, weights.k), LAYOUT, NORM)
    wide: tl.constexpr = LAYOUT.wide
    part: tl.constexpr = LAYOUT.part
    parts: tl.constexpr = LAYOUT.parts
    total = head_of((tl.zeros([ROWS, wide], tl.float32), tl.zeros([ROWS, wide], tl.float32)), ())
    for _ in tl.static_range(parts):
        total += (tl.zeros([ROWS, part], tl.float32),)
    width: tl.constexpr = 2 * LAYOUT.pairs + LAYOUT.rest
    for i in range(HEADS):
        ok = (row < tl.where(head + i < head_count, sizes.rows, 0))[:, None]
        if PER_HEAD:
            at_head = at_row + (head + i) * at_strides.head
            c, s = load_tables(tables.cos, tables.sin, at_head, at_strides.step, ok, LAYOUT)
        pairs = load_pairs(kept + LAYOUT.first * kept_step, kept_step, ok, LAYOUT, LAYOUT.read_twins)
        x = head_of(pairs, load_rest(kept + LAYOUT.rest_first * kept_step, kept_step, ok, LAYOUT))
        u, v = load_pairs(up + LAYOUT.first * up_step, up_step, ok, LAYOUT, LAYOUT.write_twins)
        u, v = rotated(u, v, c, -s, tl.float32, False)
        given = head_of((u, v), load_rest(up + LAYOUT.rest_first * up_step, up_step, ok, LAYOUT))
        root = tl.where(ok, root_of(x, width, eps), 0.0)  # of nothing it may be infinite
        x = times(x, root)
        if of_programs is not None:  # zero where nothing was loaded
            total = sums(total, products(given, x))
        if NORM.weighted:
            given = products(given, weight)
        mean = tl.div_rn(dots(given, x), width)[:, None]
        gradient = times(sums(given, times(x, -mean)), root)
        store_pairs(down + LAYOUT.first * down_step, down_step, ok, gradient[0], gradient[1], LAYOUT, LAYOUT.read_twins)
        store_rest(down + LAYOUT.rest_first * down_step, down_step, ok, rest_of(gradient), LAYOUT)
        kept += kept_head
        up += up_head
        down += down_head
    if of_programs is not None:
        program = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + group
        mine = of_programs + program * width
        all_ok = tl.full([1, 1], True, tl.int1)
        a, b = tl.sum(total[0], axis=0)[None, :], tl.sum(total[1], axis=0)[None, :]
        store_pairs(mine + LAYOUT.first, 1, all_ok, a, b, LAYOUT, LAYOUT.read_twins)
        for j in tl.static_range(parts):
            channel = j * part + tl.arange(0, part)[None, :]
            found = tl.sum(total[2 + j], axis=0)[None, :]
            tl.store(mine + LAYOUT.rest_first + channel, found, mask=channel < LAYOUT.rest)


@triton.jit
def lane(is_q, of_q, of_k, q_strides, k_strides, head, token, batch):
    """Where a program reads or writes its first head, and how far it is to the next one, and to the next channel."""
    to_head = tl.where(is_q, q_strides.head, k_strides.head).to(tl.int64)
    row = token * tl.where(is_q, q_strides.token, k_strides.token)
    row += batch * tl.where(is_q, q_strides.batch, k_strides.batch)
    step = tl.where(is_q, q_strides.step, k_strides.step).to(tl.int64)
    return tl.where(is_q, of_q, of_k) + head * to_head + row[:, None], to_head, step


def rotate_back(
    xs: list[Tensor], of_results: list[Tensor], rotation: Rotation, order: Order, norm: Norm, of_weights: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """Of q, or of q and k: the gradient, new and contiguous, and that of its weight, summed in float64."""
    down = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in xs]
    sides = [[in_memory(x, order) for x in both] for both in (xs, of_results)] + [down]
    axes = [[axes_of(x, order) for x in both] for both in sides]
    strides = [Strides(*of[:4]) for of_q, *of_k in axes for of in (of_q, of_k[0] if of_k else (0, 0, 0, 1))]
    *_, batch, q_heads, tokens = axes[0][0]
    k_heads = axes[0][1][5] if len(xs) == 2 else 0
    few = rotation.layout.head_dim > 3 * rotation.layout.rotary_dim  # wide heads beside few pairs fill the registers
    lies, tile_rows = about(rotation.layout, launch.TILE // 2 if few else launch.TILE)
    cut = programs_of(batch * tokens, q_heads, k_heads, tile_rows, enough_for(xs[0].device))
    shape = (*cut.grid, rotation.layout.head_dim)
    of_programs = torch.empty(shape, dtype=torch.float32, device=xs[0].device) if of_weights else None
    angles = of_tables(rotation.cos, rotation.sin, rotation.per_head)
    weights, eps, kind = of_norm(norm)
    if 0 not in cut.grid:
        with on_device_of(xs[0]):
            back_heads[cut.grid](
                BackHeads(*(both[i] for both in sides for i in (0, -1))), Tables(None, *angles.tensors[2:]),
                of_programs, Sizes(batch * tokens, tokens, q_heads, k_heads, cut.q_groups, angles.batches),
                BackHeads(*strides), Strides(*angles.strides), weights, eps, lies, kind, angles.per_head,
                (cut.rows, cut.heads), num_warps=cut.warps, enable_fp_fusion=False,
            )  # fmt: skip
    groups = (slice(0, cut.q_groups), slice(cut.q_groups, None))
    return [
        (
            d,
            None
            if w is None or of_programs is None
            else of_programs[:, part].sum((0, 1), dtype=torch.float64).to(w.dtype),
        )
        for d, w, part in zip(down, norm[:2], groups, strict=False)
    ]
