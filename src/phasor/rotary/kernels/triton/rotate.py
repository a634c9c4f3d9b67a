"""q and k rotated in one launch, after a norm if there is one: the kernel, and what it is launched with."""

import triton
import triton.language as tl
from torch import Tensor

from ...layout import Layout
from ..norm import Norm
from ..order import Order
from . import launch
from .device import cos_sin, load_pairs, load_rest, load_tables, phases, rotated, store_pairs, store_rest
from .heads import head_of, normed, one_more, rest_of
from .launch import Angles, about, axes_of, grid, of_norm, on_device_of


@triton.jit
def rotate_heads(
    q, k, y, z, at, steps, cos, sin, factor, rows, tokens, of_q, of_k, q_groups, at_batches,
    q_batch, q_head, q_token, q_step, k_batch, k_head, k_token, k_step,
    y_batch, y_head, y_token, y_step, z_batch, z_head, z_token, z_step,
    at_batch, at_head, at_token, at_step,
    q_weight, k_weight, eps, NORM: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr,
    AXES: tl.constexpr, PER_HEAD: tl.constexpr, NEGATE: tl.constexpr, SCALED: tl.constexpr, ROUNDED: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, PART: tl.constexpr, REST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, EVEN: tl.constexpr, ONE_BATCH: tl.constexpr, AT_REPEATS: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """One launch for q and k: program ``(tile, group)`` rotates ``HEADS`` heads of one of them, in ``ROWS`` rows.

    ``at`` are positions of ``AXES`` axes, which ``at_step`` separates, and ``steps`` turns per position; or, with no
    axes, ``cos`` and ``sin`` are tables, and ``at_*`` their strides. All offsets are formed in 64 bits. With ``NORM``
    every head is divided by the root of its mean square first, and multiplied by a weight of contiguous channels.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = row < rows
    if ONE_BATCH:
        token = row.to(tl.int64)
        batch = tl.zeros_like(token)
    else:
        token = (row % tokens).to(tl.int64)
        batch = (row // tokens).to(tl.int64)
    at_row = token * at_token + (batch % at_batches if AT_REPEATS else batch) * at_batch

    group = tl.program_id(1)
    is_q = group < q_groups
    head = tl.where(is_q, group, group - q_groups).to(tl.int64) * HEADS
    heads = tl.where(is_q, of_q, of_k)
    x_head = tl.where(is_q, q_head, k_head).to(tl.int64)
    y_head = tl.where(is_q, y_head, z_head).to(tl.int64)
    x_row = token * tl.where(is_q, q_token, k_token) + batch * tl.where(is_q, q_batch, k_batch)
    y_row = token * tl.where(is_q, y_token, z_token) + batch * tl.where(is_q, y_batch, z_batch)
    x = tl.where(is_q, q, k) + head * x_head + x_row[:, None]
    y = tl.where(is_q, y, z) + head * y_head + y_row[:, None]
    x_step = 1 if UNIT else tl.where(is_q, q_step, k_step).to(tl.int64)
    y_step = 1 if UNIT else tl.where(is_q, y_step, z_step).to(tl.int64)

    if AXES:
        c, s = cos_sin(phases(at, at_step, at_row, row_ok, steps, PAIRS, WIDE, AXES))
    elif not PER_HEAD:
        c, s = load_tables(cos, sin, at_row, at_step, row_ok[:, None], PAIRS, WIDE)
    if not PER_HEAD:
        if NEGATE:
            s = -s
        if SCALED:
            c, s = c * factor, s * factor
    dtype: tl.constexpr = q.dtype.element_ty
    weight = ()
    if WEIGHTED:
        at_weight, all_ok = tl.where(is_q, q_weight, k_weight), tl.full([1, 1], True, tl.int1)
        pairs = load_pairs(at_weight + FIRST, 1, all_ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
        weight = head_of(pairs, load_rest(at_weight + REST_FIRST, 1, all_ok, REST, PART))
        if OFFSET:
            weight = one_more(weight)
    for i in tl.static_range(HEADS):
        ok = (row_ok if EVEN else row < tl.where(head + i < heads, rows, 0))[:, None]
        if PER_HEAD:
            c, s = load_tables(cos, sin, at_row + (head + i) * at_head, at_step, ok, PAIRS, WIDE)
            if NEGATE:
                s = -s
        a, b = load_pairs(x + FIRST * x_step, x_step, ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
        rest = load_rest(x + REST_FIRST * x_step, x_step, ok, REST, PART)
        if NORM:
            whole = normed(head_of((a, b), rest), weight, 2 * PAIRS + REST, eps, dtype, NORM)
            a, b, rest = whole[0], whole[1], rest_of(whole)
        a, b = rotated(a, b, c, s, dtype, ROUNDED)
        store_pairs(y + FIRST * y_step, y_step, ok, a, b, PAIRS, WIDE, BLOCKS, WRITE_TWINS)
        store_rest(y + REST_FIRST * y_step, y_step, ok, rest, REST, PART)
        x += x_head
        y += y_head


def rotate(
    q: Tensor, k: Tensor | None, y: Tensor, z: Tensor | None, angles: Angles, layout: Layout, order: Order,
    negate: bool, rounded: bool, norm: Norm | None = None,
) -> None:  # fmt: skip
    """Writes q and k, normalised and rotated, to y and z, which may be q and k themselves. k has the batch of q."""
    *x_strides, batch, of_q, tokens = axes_of(q, order)
    *y_strides, _, _, _ = axes_of(y, order)
    *k_strides, _, of_k, _ = axes_of(k, order) if k is not None else (0, 0, 0, 1, 1, 0, 1)
    *z_strides, _, _, _ = axes_of(z, order) if z is not None else (0, 0, 0, 1, 1, 0, 1)
    rows, constants = batch * tokens, about(layout, launch.TILE)
    programs, q_groups, heads = grid(rows, of_q, of_k, constants["ROWS"])
    if 0 in programs:
        return
    weights, about_norm = of_norm(norm)
    strides = [*x_strides, *k_strides, *y_strides, *z_strides]
    with on_device_of(q):
        rotate_heads[programs](
            q, q if k is None else k, y, y if z is None else z, *angles.tensors, angles.factor,
            rows, tokens, of_q, of_k, q_groups, angles.batches, *strides, *angles.strides, *weights,
            AXES=angles.axes, PER_HEAD=angles.per_head, NEGATE=negate, SCALED=angles.factor != 1, ROUNDED=rounded,
            **constants | about_norm | ({"REST": 0} if y is q and z is k and norm is None else {}),
            HEADS=heads, EVEN=of_q % heads == 0 and of_k % heads == 0, ONE_BATCH=batch == 1,
            AT_REPEATS=angles.batches not in (1, batch), UNIT=strides[3::4] == [1, 1, 1, 1],
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
