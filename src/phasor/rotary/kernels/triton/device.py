"""What one program does: phases of a tile of rows, then the heads of these rows, one after the other.

A row is one token of one batch entry. `cos_sin`, `phases` and `rotated` know nothing of tensors and are of use to other
kernels. All is compiled without fusing products and sums, so the bits are those of the plain expression.
"""

import math

import triton
import triton.language as tl

RADIANS = tl.constexpr(2 * math.pi / 2**64)


@triton.jit
def cos_sin(phase):
    """`phasor.rotary.phase.cos_sin` of int64 phases, operation by operation: float32."""
    # The nearest quarter turn, -2 to 1: an eighth is added before the rest is cut off. The sum may wrap, as the circle.
    quarter = (phase + (1 << 61)) >> 62
    x = (phase - (quarter << 62)).to(tl.float32) * RADIANS
    z = x * x
    sin = x + x * (z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4)))
    cos = 1 - z * (0.5 - z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5)))
    odd = (quarter & 1) != 0
    u = tl.where(odd, sin, cos)
    v = tl.where(odd, cos, sin)
    # 0 - u and not -u, which would make -0.0 of 0.0.
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
def rotated(a, b, cos, sin, dtype: tl.constexpr, ROUNDED: tl.constexpr):
    """``(a cos - b sin, a sin + b cos)`` in float32; the caller's store rounds the sum."""
    first = product(a, cos, dtype, ROUNDED) - product(b, sin, dtype, ROUNDED)
    second = product(a, sin, dtype, ROUNDED) + product(b, cos, dtype, ROUNDED)
    return first, second


@triton.jit
def channels(LAYOUT: tl.constexpr):
    """The first channel of every pair of halves, ``[1, wide]``; the second is ``pairs // blocks`` further."""
    pair = tl.arange(0, LAYOUT.wide)[None, :]
    if LAYOUT.blocks == 1:
        return pair
    per: tl.constexpr = LAYOUT.pairs // LAYOUT.blocks
    return pair // per * (2 * per) + pair % per  # the block's first channel, and the pair's place in the block


@triton.jit
def load_pairs(x, step, ok, LAYOUT: tl.constexpr, TWINS: tl.constexpr):
    """Both members of the pairs of some rows, in float32: neighbours (``TWINS``), or halves of blocks."""
    return widened(read_pairs(x, step, ok, LAYOUT, TWINS), TWINS)


@triton.jit
def read_pairs(x, step, ok, LAYOUT: tl.constexpr, TWINS: tl.constexpr):
    """The same as they lie in memory: half precision takes half the registers. Neighbours are together, named twice."""
    if TWINS:
        channel = tl.arange(0, 2 * LAYOUT.wide)[None, :]
        both = tl.load(x + channel * step, mask=ok & (channel < 2 * LAYOUT.pairs), other=0)
        pairs = both, both
    else:
        here = ok & (tl.arange(0, LAYOUT.wide)[None, :] < LAYOUT.pairs)
        first = x + channels(LAYOUT) * step
        a = tl.load(first, mask=here, other=0)
        pairs = a, tl.load(first + LAYOUT.pairs // LAYOUT.blocks * step, mask=here, other=0)
    return pairs


@triton.jit
def widened(pairs, TWINS: tl.constexpr):
    """What `read_pairs` gave, in float32: first and second members."""
    a, b = pairs[0].to(tl.float32), pairs[1].to(tl.float32)
    if TWINS:
        return tl.split(tl.reshape(a, [a.shape[0], a.shape[1] // 2, 2]))
    else:
        return a, b


@triton.jit
def store_pairs(y, step, ok, a, b, LAYOUT: tl.constexpr, TWINS: tl.constexpr):
    """The reverse of `load_pairs`; rounds to the dtype of ``y``, to nearest even."""
    if TWINS:
        channel = tl.arange(0, 2 * LAYOUT.wide)[None, :]
        both = tl.reshape(tl.join(a, b), [a.shape[0], 2 * LAYOUT.wide])
        tl.store(y + channel * step, both.to(y.dtype.element_ty), mask=ok & (channel < 2 * LAYOUT.pairs))
    else:
        here = ok & (tl.arange(0, LAYOUT.wide)[None, :] < LAYOUT.pairs)
        first = y + channels(LAYOUT) * step
        tl.store(first, a.to(y.dtype.element_ty), mask=here)
        tl.store(first + LAYOUT.pairs // LAYOUT.blocks * step, b.to(y.dtype.element_ty), mask=here)


@triton.jit
def load_rest(x, step, ok, LAYOUT: tl.constexpr):
    """Channels that pass, a tuple of parts as wide as a load of pairs: so the same threads hold a row of both."""
    rest = ()
    parts: tl.constexpr = LAYOUT.parts
    for i in tl.static_range(parts):  # the last one may be partly empty
        channel = i * LAYOUT.part + tl.arange(0, LAYOUT.part)[None, :]
        rest += (tl.load(x + channel * step, mask=ok & (channel < LAYOUT.rest), other=0),)
    return rest


@triton.jit
def store_rest(y, step, ok, rest, LAYOUT: tl.constexpr):
    """The reverse of `load_rest`."""
    parts: tl.constexpr = LAYOUT.parts
    for i in tl.static_range(parts):
        channel = i * LAYOUT.part + tl.arange(0, LAYOUT.part)[None, :]
        tl.store(y + channel * step, rest[i].to(y.dtype.element_ty), mask=ok & (channel < LAYOUT.rest))


@triton.jit
def load_tables(cos, sin, row, step, ok, LAYOUT: tl.constexpr):
    """Rows of tables of any dtype, in float32."""
    pair = tl.arange(0, LAYOUT.wide)[None, :]
    here = ok & (pair < LAYOUT.pairs)
    at = row[:, None] + pair * step
    return tl.load(cos + at, mask=here, other=0).to(tl.float32), tl.load(sin + at, mask=here, other=0).to(tl.float32)
