"""What one program does: phases of a tile of rows, then the heads of these rows, one after the other.

A row is one token of one batch entry. `cos_sin`, `phases` and `turned` know nothing of tensors and are of use to other
kernels. All is compiled without fusing products and sums, so the bits are those of the plain expression.
"""

import math

import triton
import triton.language as tl

RADIANS = tl.constexpr(2 * math.pi / 2**64)


@triton.jit
def cos_sin(phase):
    """`phasor.phase.cos_sin` of int64 phases, operation by operation: float32."""
    quarter = (phase + (1 << 61)) >> 62
    x = (phase - (quarter << 62)).to(tl.float32) * RADIANS
    z = x * x
    sin = x + x * (z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4)))
    cos = 1 - z * (0.5 - z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5)))
    odd = (quarter & 1) != 0
    u = tl.where(odd, sin, cos)
    v = tl.where(odd, cos, sin)
    return tl.where(((quarter + 1) & 2) != 0, 0 - u, u), tl.where(quarter < 0, 0 - v, v)


@triton.jit
def phases(at, at_axis, row, row_ok, steps, PAIRS: tl.constexpr, WIDE: tl.constexpr, AXES: tl.constexpr):
    """Sums over axes of position times step, ``[rows, WIDE]`` int64: exact modulo one turn."""
    pair = tl.arange(0, WIDE)
    total = tl.zeros([row.shape[0], WIDE], tl.int64)
    for _ in tl.static_range(AXES):
        position = tl.load(at + row, mask=row_ok, other=0).to(tl.int64)
        step = tl.load(steps + pair, mask=pair < PAIRS, other=0)
        total += position[:, None] * step[None, :]
        at += at_axis
        steps += PAIRS
    return total


@triton.jit
def product(a, b, dtype: tl.constexpr, ROUNDED: tl.constexpr):
    """In float32; or rounded to half precision, where a model multiplies in it."""
    ab = a * b
    return ab.to(dtype).to(tl.float32) if ROUNDED else ab


@triton.jit
def turned(a, b, cos, sin, dtype: tl.constexpr, ROUNDED: tl.constexpr):
    """``(a cos - b sin, a sin + b cos)`` in float32; the caller's store rounds the sum."""
    first = product(a, cos, dtype, ROUNDED) - product(b, sin, dtype, ROUNDED)
    second = product(a, sin, dtype, ROUNDED) + product(b, cos, dtype, ROUNDED)
    return first, second


@triton.jit
def channels(PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr):
    """The first channel of every pair of halves, ``[1, WIDE]``; the second is ``PAIRS // BLOCKS`` further."""
    pair = tl.arange(0, WIDE)[None, :]
    if BLOCKS == 1:
        return pair
    per: tl.constexpr = PAIRS // BLOCKS
    return pair // per * (2 * per) + pair % per


@triton.jit
def load_pairs(x, step, ok, PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, TWINS: tl.constexpr):
    """Both members of the pairs of some rows, in float32: neighbours (``TWINS``), or halves of ``BLOCKS``."""
    if TWINS:
        channel = tl.arange(0, 2 * WIDE)[None, :]
        both = tl.load(x + channel * step, mask=ok & (channel < 2 * PAIRS), other=0).to(tl.float32)
        return tl.split(tl.reshape(both, [both.shape[0], WIDE, 2]))
    here = ok & (tl.arange(0, WIDE)[None, :] < PAIRS)
    first = x + channels(PAIRS, WIDE, BLOCKS) * step
    a = tl.load(first, mask=here, other=0).to(tl.float32)
    b = tl.load(first + PAIRS // BLOCKS * step, mask=here, other=0).to(tl.float32)
    return a, b


@triton.jit
def store_pairs(y, step, ok, a, b, PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, TWINS: tl.constexpr):
    """The reverse of `load_pairs`; rounds to the dtype of ``y``, to nearest even."""
    if TWINS:
        channel = tl.arange(0, 2 * WIDE)[None, :]
        both = tl.reshape(tl.join(a, b), [a.shape[0], 2 * WIDE])
        tl.store(y + channel * step, both.to(y.dtype.element_ty), mask=ok & (channel < 2 * PAIRS))
    else:
        here = ok & (tl.arange(0, WIDE)[None, :] < PAIRS)
        first = y + channels(PAIRS, WIDE, BLOCKS) * step
        tl.store(first, a.to(y.dtype.element_ty), mask=here)
        tl.store(first + PAIRS // BLOCKS * step, b.to(y.dtype.element_ty), mask=here)


@triton.jit
def load_tables(cos, sin, row, step, ok, PAIRS: tl.constexpr, WIDE: tl.constexpr):
    """Rows of tables of any dtype, in float32."""
    pair = tl.arange(0, WIDE)[None, :]
    here = ok & (pair < PAIRS)
    at = row[:, None] + pair * step
    return tl.load(cos + at, mask=here, other=0).to(tl.float32), tl.load(sin + at, mask=here, other=0).to(tl.float32)


@triton.jit
def turn_heads(
    q, k, y, z, at, steps, cos, sin, factor, rows, tokens, of_q, of_k, q_groups, at_batches,
    q_batch, q_head, q_token, q_step, k_batch, k_head, k_token, k_step,
    y_batch, y_head, y_token, y_step, z_batch, z_head, z_token, z_step,
    at_batch, at_head, at_token, at_step,
    AXES: tl.constexpr, PER_HEAD: tl.constexpr, NEGATE: tl.constexpr, SCALED: tl.constexpr, ROUNDED: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, READ_TWINS: tl.constexpr, WRITE_TWINS: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, REST_WIDE: tl.constexpr, REST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, EVEN: tl.constexpr, ONE_BATCH: tl.constexpr, AT_REPEATS: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """One launch for q and k: program ``(tile, group)`` turns ``HEADS`` heads of one of them, in ``ROWS`` rows.

    ``at`` are positions of ``AXES`` axes, which ``at_step`` separates, and ``steps`` turns per position; or, with no
    axes, ``cos`` and ``sin`` are tables, and ``at_*`` their strides. All offsets are formed in 64 bits.
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
    for i in tl.static_range(HEADS):
        ok = (row_ok if EVEN else row < tl.where(head + i < heads, rows, 0))[:, None]
        if PER_HEAD:
            c, s = load_tables(cos, sin, at_row + (head + i) * at_head, at_step, ok, PAIRS, WIDE)
            if NEGATE:
                s = -s
        a, b = load_pairs(x + FIRST * x_step, x_step, ok, PAIRS, WIDE, BLOCKS, READ_TWINS)
        a, b = turned(a, b, c, s, q.dtype.element_ty, ROUNDED)
        store_pairs(y + FIRST * y_step, y_step, ok, a, b, PAIRS, WIDE, BLOCKS, WRITE_TWINS)
        if REST:
            channel = tl.arange(0, REST_WIDE)[None, :]
            here = ok & (channel < REST)
            rest = tl.load(x + (REST_FIRST + channel) * x_step, mask=here)
            tl.store(y + (REST_FIRST + channel) * y_step, rest, mask=here)
        x += x_head
        y += y_head
