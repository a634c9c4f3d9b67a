"""q and k rotated in one launch, after a norm if there is one: the kernel, and what it is launched with."""

import triton
import triton.language as tl
from torch import Tensor

from ...layout import Layout
from ..norm import Norm
from ..order import Order
from . import launch
from .arguments import Cut, Heads, Reading, Sizes, Strides, Tables
from .device import cos_sin, load_rest, load_tables, phases, read_pairs, rotated, store_pairs, store_rest, widened
from .heads import head_of, normed, rest_of, weight_at
from .launch import (
    Angles,
    Launch,
    about,
    ahead,
    axes_of,
    enough_for,
    in_units,
    kept,
    launched,
    of_norm,
    programs_of,
)


@triton.jit(do_not_specialize=["at"])
def rotate_heads(
    heads, at, tables, weights, factors, sizes, strides, at_strides, LAYOUT: tl.constexpr, NORM: tl.constexpr,
    READ: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """One launch for q and k: program ``(tile, group)`` rotates some heads of one of them, in some rows.

    ``at`` are positions, ``factors`` that of cos and sin, and eps; what the other groups hold is in `arguments`. All
    offsets are formed in 64 bits. With a norm every head is divided by the root of its mean square first, and
    multiplied by its weight if it has one.
    """
    row = tl.program_id(0) * CUT.rows + tl.arange(0, CUT.rows)
    row_ok = row < sizes.rows
    if CUT.one_axis:
        token = row.to(tl.int64)
        batch = tl.zeros_like(token)
    else:
        token = (row % sizes.tokens).to(tl.int64)
        batch = (row // sizes.tokens).to(tl.int64)
    at_row = token * at_strides.token + (batch % sizes.at_batches if READ.repeats else batch) * at_strides.batch
    if not READ.axes:
        at_row *= READ.unit

    group = tl.program_id(1)
    is_q = group < sizes.q_groups
    head = tl.where(is_q, group, group - sizes.q_groups).to(tl.int64) * CUT.heads
    head_count = tl.where(is_q, sizes.of_q, sizes.of_k)
    x_head = tl.where(is_q, strides.q.head, strides.k.head).to(tl.int64) * CUT.unit
    y_head = tl.where(is_q, strides.y.head, strides.z.head).to(tl.int64) * CUT.unit
    x_row = token * tl.where(is_q, strides.q.token, strides.k.token)
    x_row += batch * tl.where(is_q, strides.q.batch, strides.k.batch)
    y_row = token * tl.where(is_q, strides.y.token, strides.z.token)
    y_row += batch * tl.where(is_q, strides.y.batch, strides.z.batch)
    x = tl.where(is_q, heads.q, heads.k) + head * x_head + (x_row * CUT.unit)[:, None]
    y = tl.where(is_q, heads.y, heads.z) + head * y_head + (y_row * CUT.unit)[:, None]
    x_step = 1 if CUT.adjacent else tl.where(is_q, strides.q.step, strides.k.step).to(tl.int64)
    y_step = 1 if CUT.adjacent else tl.where(is_q, strides.y.step, strides.z.step).to(tl.int64)
    at_step = 1 if READ.adjacent else at_strides.step

    if READ.axes:
        c, s = cos_sin(phases(at, at_step, at_row, row_ok, tables.steps, LAYOUT.pairs, LAYOUT.wide, READ.axes))
    elif not READ.per_head:
        c, s = load_tables(tables.cos, tables.sin, at_row, at_step, row_ok[:, None], LAYOUT)
    if not READ.per_head:
        if READ.negate:
            s = -s
        if READ.scaled:
            c, s = c * factors[0], s * factors[0]
    dtype: tl.constexpr = heads.q.dtype.element_ty
    weight = ()
    if NORM.weighted:
        weight = weight_at(tl.where(is_q, weights.q, weights.k), LAYOUT, NORM)
    count: tl.constexpr = CUT.heads
    ahead: tl.constexpr = CUT.ahead
    for first in tl.static_range(0, count, ahead):
        pairs, rests = (), ()
        for i in tl.static_range(first, first + ahead if first + ahead < count else count):
            ok = (row_ok if CUT.even else row < tl.where(head + i < head_count, sizes.rows, 0))[:, None]
            pairs += (read_pairs(x + LAYOUT.first * x_step, x_step, ok, LAYOUT, LAYOUT.read_twins),)
            rests += (load_rest(x + LAYOUT.rest_first * x_step, x_step, ok, LAYOUT),)
            x += x_head
        for i in tl.static_range(first, first + ahead if first + ahead < count else count):
            ok = (row_ok if CUT.even else row < tl.where(head + i < head_count, sizes.rows, 0))[:, None]
            if READ.per_head:
                at_head = at_row + (head + i) * at_strides.head * READ.unit
                c, s = load_tables(tables.cos, tables.sin, at_head, at_step, ok, LAYOUT)
                if READ.negate:
                    s = -s
            a, b = widened(pairs[i - first], LAYOUT.read_twins)
            rest = rests[i - first]
            if NORM.rounds:
                whole = normed(
                    head_of((a, b), rest), weight, 2 * LAYOUT.pairs + LAYOUT.rest, factors[1], dtype, NORM.rounds
                )
                a, b, rest = whole[0], whole[1], rest_of(whole)
            a, b = rotated(a, b, c, s, dtype, READ.rounded)
            store_pairs(y + LAYOUT.first * y_step, y_step, ok, a, b, LAYOUT, LAYOUT.write_twins)
            store_rest(y + LAYOUT.rest_first * y_step, y_step, ok, rest, LAYOUT)
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
    rows, (lies, tile_rows) = batch * tokens, about(layout, launch.TILE)
    every = [x_strides, k_strides, y_strides, z_strides, angles.strides]
    if tokens == 1 and angles.batches in (1, batch):  # sequences of one token are one of many: so no row is divided
        every, tokens, batch = [(0, head, of_batch, step) for of_batch, head, _, step in every], batch, 1
    programs = programs_of(rows, of_q, of_k, tile_rows, enough_for(q.device))
    if 0 in programs.grid:
        return None
    strides, unit = in_units(every[:4])
    (of_angles,), at_unit = ((Strides(*every[4]),), 1) if angles.axes else in_units(every[4:])
    positions, *tables = angles.tensors
    weights, eps, kind = of_norm(norm)
    if y is q and z is k and norm is None:
        lies = lies._replace(rest=0, parts=0)
    reading = Reading(
        angles.axes, angles.per_head, negate, angles.factor != 1, rounded,
        repeats=batch != 1 and angles.batches not in (1, batch), unit=at_unit,
        adjacent=not angles.axes and of_angles.step == 1,
    )  # fmt: skip
    cut = Cut(
        programs.rows, programs.heads, ahead(layout, programs),
        even=of_q % programs.heads == 0 and of_k % programs.heads == 0, one_axis=batch == 1, unit=unit,
        adjacent=all(of.step == 1 for of in strides),
    )  # fmt: skip
    arguments = (
        Heads(q, q if k is None else k, y, y if z is None else z), positions, Tables(*tables), weights,
        (angles.factor, eps), Sizes(rows, tokens, of_q, of_k, programs.q_groups, angles.batches), Heads(*strides),
        of_angles, lies, kind, reading, cut,
    )  # fmt: skip
    compiled = launched(rotate_heads, programs, arguments)
    return None if compiled is None else kept(compiled, programs, arguments)
