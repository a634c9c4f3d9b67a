"""q and k rotated in one launch, after a norm if there is one: the kernel, and what it is launched with."""

import triton
import triton.language as tl
from torch import Tensor

from ...layout import Layout
from ..norm import Norm
from ..order import Order
from . import launch
from .device import (
    cos_sin,
    load_pairs,
    load_rest,
    load_tables,
    phases,
    read_pairs,
    rotated,
    store_pairs,
    store_rest,
    widened,
)
from .heads import head_of, normed, one_more, rest_of
from .launch import (
    Angles,
    Launch,
    about,
    ahead,
    axes_of,
    enough_for,
    in_units,
    launched,
    of_norm,
    programs_of,
)

# What serving changes from call to call: code is not made anew for sizes and strides that are 1 or multiples of 16.
CHANGING = [
    "factor", "rows", "tokens", "of_q", "of_k", "q_groups", "at_batches", "at", "q_batch", "q_head", "q_token",
    "q_step", "k_batch", "k_head", "k_token", "k_step", "y_batch", "y_head", "y_token", "y_step", "z_batch",
    "z_head", "z_token", "z_step", "at_batch", "at_head", "at_token", "at_step", "eps",
]  # fmt: skip


@triton.jit(do_not_specialize=CHANGING)
def rotate_heads(
    q, k, y, z, at, steps, cos, sin, q_weight, k_weight, factor, eps, rows, tokens, of_q, of_k, q_groups, at_batches,
    q_batch, q_head, q_token, q_step, k_batch, k_head, k_token, k_step,
    y_batch, y_head, y_token, y_step, z_batch, z_head, z_token, z_step,
    at_batch, at_head, at_token, at_step,
    NORM: tl.constexpr, WEIGHTED: tl.constexpr, OFFSET: tl.constexpr,
    AXES: tl.constexpr, PER_HEAD: tl.constexpr, NEGATE: tl.constexpr, SCALED: tl.constexpr, ROUNDED: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, PART: tl.constexpr, REST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, AHEAD: tl.constexpr, EVEN: tl.constexpr, ONE_AXIS: tl.constexpr,
    AT_REPEATS: tl.constexpr, OF: tl.constexpr, AT_OF: tl.constexpr, UNIT: tl.constexpr, AT_UNIT: tl.constexpr,
):  # fmt: skip
    """One launch for q and k: program ``(tile, group)`` rotates ``HEADS`` heads of one of them, in ``ROWS`` rows.

    ``at`` are positions of ``AXES`` axes, which ``at_step`` separates, and ``steps`` turns per position; or, with no
    axes, ``cos`` and ``sin`` are tables, and ``at_*`` their strides. All offsets are formed in 64 bits. Strides count
    ``OF`` channels, those of tables ``AT_OF``; of channels and pairs they count one. With ``NORM`` every head is
    divided by the root of its mean square first, and multiplied by a weight of contiguous channels. ``AHEAD`` heads are
    loaded before the first of them is stored.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = row < rows
    if ONE_AXIS:
        token = row.to(tl.int64)
        batch = tl.zeros_like(token)
    else:
        token = (row % tokens).to(tl.int64)
        batch = (row // tokens).to(tl.int64)
    at_row = token * at_token + (batch % at_batches if AT_REPEATS else batch) * at_batch
    if not AXES:
        at_row *= AT_OF

    group = tl.program_id(1)
    is_q = group < q_groups
    head = tl.where(is_q, group, group - q_groups).to(tl.int64) * HEADS
    heads = tl.where(is_q, of_q, of_k)
    x_head = tl.where(is_q, q_head, k_head).to(tl.int64) * OF
    y_head = tl.where(is_q, y_head, z_head).to(tl.int64) * OF
    x_row = token * tl.where(is_q, q_token, k_token) + batch * tl.where(is_q, q_batch, k_batch)
    y_row = token * tl.where(is_q, y_token, z_token) + batch * tl.where(is_q, y_batch, z_batch)
    x = tl.where(is_q, q, k) + head * x_head + (x_row * OF)[:, None]
    y = tl.where(is_q, y, z) + head * y_head + (y_row * OF)[:, None]
    x_step = 1 if UNIT else tl.where(is_q, q_step, k_step).to(tl.int64)
    y_step = 1 if UNIT else tl.where(is_q, y_step, z_step).to(tl.int64)
    if AT_UNIT:
        at_step = 1

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
    for first in tl.static_range(0, HEADS, AHEAD):
        pairs, rests = (), ()
        for i in tl.static_range(first, min(first + AHEAD, HEADS)):
            ok = (row_ok if EVEN else row < tl.where(head + i < heads, rows, 0))[:, None]
            read = read_pairs(x + FIRST * x_step, x_step, ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
            pairs += (read,)  # type: ignore[assignment]  # it grows in a loop that Triton unrolls
            passing = load_rest(x + REST_FIRST * x_step, x_step, ok, REST, PART)
            rests += (passing,)  # type: ignore[assignment]
            x += x_head
        for i in tl.static_range(first, min(first + AHEAD, HEADS)):
            ok = (row_ok if EVEN else row < tl.where(head + i < heads, rows, 0))[:, None]
            if PER_HEAD:
                c, s = load_tables(cos, sin, at_row + (head + i) * at_head * AT_OF, at_step, ok, PAIRS, WIDE)
                if NEGATE:
                    s = -s
            a, b = widened(pairs[i - first], READ_TWINS)
            rest = rests[i - first]  # type: ignore[var-annotated]
            if NORM:
                whole = normed(head_of((a, b), rest), weight, 2 * PAIRS + REST, eps, dtype, NORM)
                a, b, rest = whole[0], whole[1], rest_of(whole)
            a, b = rotated(a, b, c, s, dtype, ROUNDED)
            store_pairs(y + FIRST * y_step, y_step, ok, a, b, PAIRS, WIDE, BLOCKS, WRITE_TWINS)
            store_rest(y + REST_FIRST * y_step, y_step, ok, rest, REST, PART)
            y += y_head


def rotate(
    q: Tensor, k: Tensor | None, y: Tensor, z: Tensor | None, angles: Angles, layout: Layout, order: Order,
    negate: bool, rounded: bool, norm: Norm | None = None,
) -> Launch | None:  # fmt: skip
    """Writes q and k, normalised and rotated, to y and z, which may be q and k themselves. k has the batch of q.

    Returns how to do it again for tensors of these sizes; nothing if there was nothing to do.
    """
    *x_strides, batch, of_q, tokens = axes_of(q, order)
    *y_strides, _, _, _ = axes_of(y, order)
    *k_strides, _, of_k, _ = axes_of(k, order) if k is not None else (0, 0, 0, 1, 1, 0, 1)
    *z_strides, _, _, _ = axes_of(z, order) if z is not None else (0, 0, 0, 1, 1, 0, 1)
    rows, constants = batch * tokens, about(layout, launch.TILE)
    every = [x_strides, k_strides, y_strides, z_strides, angles.strides]
    if tokens == 1 and angles.batches in (1, batch):  # sequences of one token are one of many: so no row is divided
        every, tokens, batch = [(0, head, of_batch, step) for of_batch, head, _, step in every], batch, 1
    cut = programs_of(rows, of_q, of_k, constants["ROWS"], enough_for(q.device))
    if 0 in cut.grid:
        return None
    weights, about_norm = of_norm(norm)
    strides, unit = in_units([stride for of in every[:4] for stride in of])
    at_strides, at_unit = (every[4], 1) if angles.axes else in_units(every[4])
    tensors = (q, q if k is None else k, y, y if z is None else z, *angles.tensors, *weights[:2])
    numbers = (
        angles.factor, weights[2], rows, tokens, of_q, of_k, cut.q_groups, angles.batches, *strides, *at_strides
    )  # fmt: skip
    constants = constants | about_norm | ({"REST": 0} if y is q and z is k and norm is None else {})
    constants |= {
        "AXES": angles.axes, "PER_HEAD": angles.per_head, "NEGATE": negate, "SCALED": angles.factor != 1,
        "ROUNDED": rounded, "ROWS": cut.rows, "HEADS": cut.heads, "AHEAD": ahead(layout, cut),
        "EVEN": of_q % cut.heads == 0 and of_k % cut.heads == 0, "ONE_AXIS": batch == 1,
        "AT_REPEATS": batch != 1 and angles.batches not in (1, batch), "OF": unit, "AT_OF": at_unit,
        "UNIT": strides[3::4] == [1, 1, 1, 1], "AT_UNIT": not angles.axes and at_strides[3] == 1,
    }  # fmt: skip
    return launched(rotate_heads, cut, tensors, numbers, constants)
