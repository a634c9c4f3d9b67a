"""The way back of RMSNorm and rotation: gradients of q and k in one launch, and of weights in sums of its programs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...rotation import Rotation
from ..norm import Norm
from ..order import Order
from . import launch
from .device import load_pairs, load_rest, load_tables, rotated, store_pairs, store_rest
from .heads import dots, head_of, one_more, products, rest_of, root_of, sums, times
from .launch import about, axes_of, enough_for, in_memory, of_norm, of_tables, on_device_of, programs_of


@triton.jit
def back_heads(
    q, k, of_y, of_z, of_q, of_k, cos, sin, of_programs, rows, tokens, q_heads, k_heads, q_groups, at_batches,
    q_batch, q_head, q_token, q_step, k_batch, k_head, k_token, k_step,
    u_batch, u_head, u_token, u_step, v_batch, v_head, v_token, v_step,
    x_batch, x_head, x_token, x_step, z_batch, z_head, z_token, z_step,
    at_batch, at_head, at_token, at_step,
    q_weight, k_weight, eps, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr, SUMS: tl.constexpr, PER_HEAD: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, PART: tl.constexpr, REST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """As `source.rotate_heads`, back: from gradients ``of_y`` and ``of_z`` of the results to those of q and k.

    With ``n = x / root`` and ``u`` the gradient rotated back, a weight gets ``sum(u n)``, here that of a program, in
    ``of_programs`` ``[tiles, groups, head_dim]``; and x gets ``(u w - n mean(u w n)) / root``.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = row < rows
    token, batch = (row % tokens).to(tl.int64), (row // tokens).to(tl.int64)
    at_row = token * at_token + batch % at_batches * at_batch

    group = tl.program_id(1)
    is_q = group < q_groups
    head = tl.where(is_q, group, group - q_groups).to(tl.int64) * HEADS
    heads = tl.where(is_q, q_heads, k_heads)
    kept_head = tl.where(is_q, q_head, k_head).to(tl.int64)
    up_head = tl.where(is_q, u_head, v_head).to(tl.int64)
    down_head = tl.where(is_q, x_head, z_head).to(tl.int64)
    kept_row = token * tl.where(is_q, q_token, k_token) + batch * tl.where(is_q, q_batch, k_batch)
    up_row = token * tl.where(is_q, u_token, v_token) + batch * tl.where(is_q, u_batch, v_batch)
    down_row = token * tl.where(is_q, x_token, z_token) + batch * tl.where(is_q, x_batch, z_batch)
    kept = tl.where(is_q, q, k) + head * kept_head + kept_row[:, None]
    up = tl.where(is_q, of_y, of_z) + head * up_head + up_row[:, None]
    down = tl.where(is_q, of_q, of_k) + head * down_head + down_row[:, None]
    kept_step = tl.where(is_q, q_step, k_step).to(tl.int64)
    up_step = tl.where(is_q, u_step, v_step).to(tl.int64)
    down_step = tl.where(is_q, x_step, z_step).to(tl.int64)

    if not PER_HEAD:
        c, s = load_tables(cos, sin, at_row, at_step, row_ok[:, None], PAIRS, WIDE)
    all_ok = tl.full([1, 1], True, tl.int1)
    if WEIGHTED:
        at_weight = tl.where(is_q, q_weight, k_weight)
        w_pairs = load_pairs(at_weight + FIRST, 1, all_ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
        weight = head_of(w_pairs, load_rest(at_weight + REST_FIRST, 1, all_ok, REST, PART))
        if OFFSET:
            weight = one_more(weight)
    total = head_of((tl.zeros([ROWS, WIDE], tl.float32), tl.zeros([ROWS, WIDE], tl.float32)), ())
    for _ in tl.static_range((REST + PART - 1) // PART):
        total += (tl.zeros([ROWS, PART], tl.float32),)
    width: tl.constexpr = 2 * PAIRS + REST
    for i in range(HEADS):
        ok = (row < tl.where(head + i < heads, rows, 0))[:, None]
        if PER_HEAD:
            c, s = load_tables(cos, sin, at_row + (head + i) * at_head, at_step, ok, PAIRS, WIDE)
        pairs = load_pairs(kept + FIRST * kept_step, kept_step, ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
        x = head_of(pairs, load_rest(kept + REST_FIRST * kept_step, kept_step, ok, REST, PART))
        u, v = load_pairs(up + FIRST * up_step, up_step, ok, PAIRS, WIDE, BLOCKS, WRITE_TWINS)
        u, v = rotated(u, v, c, -s, tl.float32, False)
        given = head_of((u, v), load_rest(up + REST_FIRST * up_step, up_step, ok, REST, PART))
        root = tl.where(ok, root_of(x, width, eps), 0.0)  # of nothing it may be infinite
        x = times(x, root)
        if SUMS:  # zero where nothing was loaded
            total = sums(total, products(given, x))
        if WEIGHTED:
            given = products(given, weight)
        mean = tl.div_rn(dots(given, x), width)[:, None]
        gradient = times(sums(given, times(x, -mean)), root)
        store_pairs(down + FIRST * down_step, down_step, ok, gradient[0], gradient[1], PAIRS, WIDE, BLOCKS, READ_TWINS)
        store_rest(down + REST_FIRST * down_step, down_step, ok, rest_of(gradient), REST, PART)
        kept += kept_head
        up += up_head
        down += down_head
    if SUMS:
        program = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + group
        mine = of_programs + program * width
        a, b = tl.sum(total[0], axis=0)[None, :], tl.sum(total[1], axis=0)[None, :]
        store_pairs(mine + FIRST, 1, all_ok, a, b, PAIRS, WIDE, BLOCKS, READ_TWINS)
        for j in tl.static_range((REST + PART - 1) // PART):
            channel = j * PART + tl.arange(0, PART)[None, :]
            tl.store(mine + REST_FIRST + channel, tl.sum(total[2 + j], axis=0)[None, :], mask=channel < REST)


def rotate_back(
    xs: list[Tensor], of_results: list[Tensor], rotation: Rotation, order: Order, norm: Norm, of_weights: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """Of q, or of q and k: the gradient, new and contiguous, and that of its weight, summed in float64."""
    down = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in xs]
    sides = [[in_memory(x, order) for x in both] for both in (xs, of_results)] + [down]
    axes = [[axes_of(x, order) for x in both] for both in sides]
    strides = [stride for of_q, *of_k in axes for stride in (*of_q[:4], *(of_k[0][:4] if of_k else (0, 0, 0, 1)))]
    *_, batch, q_heads, tokens = axes[0][0]
    k_heads = axes[0][1][5] if len(xs) == 2 else 0
    few = rotation.layout.head_dim > 3 * rotation.layout.rotary_dim  # wide heads beside few pairs fill the registers
    constants = about(rotation.layout, launch.TILE // 2 if few else launch.TILE)
    cut = programs_of(batch * tokens, q_heads, k_heads, constants["ROWS"], enough_for(xs[0].device))
    constants = constants | {"ROWS": cut.rows, "HEADS": cut.heads}
    shape = (*cut.grid, rotation.layout.head_dim)
    of_programs = torch.empty(shape, dtype=torch.float32, device=xs[0].device) if of_weights else None
    angles = of_tables(rotation.cos, rotation.sin, rotation.per_head)
    weights, of_it = of_norm(norm)
    if 0 not in cut.grid:
        with on_device_of(xs[0]):
            back_heads[cut.grid](
                *(both[i] for both in sides for i in (0, -1)), *angles.tensors[2:], of_programs,
                batch * tokens, tokens, q_heads, k_heads, cut.q_groups, angles.batches, *strides, *angles.strides,
                *weights,
                WEIGHTED=of_it["WEIGHTED"], OFFSET=of_it["OFFSET"], SUMS=of_weights, PER_HEAD=angles.per_head,
                **constants, num_warps=cut.warps, enable_fp_fusion=False,
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
