"""RMSNorm of heads. A head is a tuple of tiles of float32: both members of its pairs, then the parts that pass."""

import triton
import triton.language as tl

from .device import load_pairs, load_rest


@triton.jit
def head_of(pairs, rest):
    """What `load_pairs` and `load_rest` gave."""
    head = (pairs[0], pairs[1])
    for i in tl.static_range(len(rest)):
        head += (rest[i].to(tl.float32),)
    return head


@triton.jit
def rest_of(head):
    """The parts that pass, for `store_rest`."""
    rest = ()
    for i in tl.static_range(2, len(head)):
        rest += (head[i],)
    return rest


@triton.jit
def dots(x, y):
    """The sum of products of every row: one reduction over pairs and one over the rest, among threads of that row."""
    total = tl.sum(x[0] * y[0] + x[1] * y[1], axis=1)
    if len(x) > 2:
        products = x[2] * y[2]
        for i in tl.static_range(3, len(x)):
            products += x[i] * y[i]
        total += tl.sum(products, axis=1)
    return total


@triton.jit
def root_of(head, width, eps):
    """``1 / sqrt(mean of squares + eps)`` of every row, ``[rows, 1]``."""
    mean = tl.div_rn(dots(head, head), width)
    return tl.div_rn(1.0, tl.sqrt_rn(mean + eps))[:, None]


@triton.jit
def times(head, factor):
    """By a tile ``[rows, 1]``."""
    parts = ()
    for i in tl.static_range(len(head)):
        parts += (head[i] * factor,)
    return parts


@triton.jit
def products(x, y):
    parts = ()
    for i in tl.static_range(len(x)):
        parts += (x[i] * y[i],)
    return parts


@triton.jit
def sums(x, y):
    parts = ()
    for i in tl.static_range(len(x)):
        parts += (x[i] + y[i],)
    return parts


@triton.jit
def weight_at(at, LAYOUT: tl.constexpr, NORM: tl.constexpr):
    """The weight of a norm, as a head; with one added where a model keeps it less one."""
    ok = tl.full([1, 1], True, tl.int1)
    pairs = load_pairs(at + LAYOUT.first, 1, ok, LAYOUT, LAYOUT.read_twins)
    weight = head_of(pairs, load_rest(at + LAYOUT.rest_first, 1, ok, LAYOUT))
    if NORM.offset:
        weight = one_more(weight)
    return weight


@triton.jit
def one_more(weight):
    parts = ()
    for i in tl.static_range(len(weight)):
        parts += (1 + weight[i],)
    return parts


@triton.jit
def normed(head, weight, width, eps, dtype: tl.constexpr, NORM: tl.constexpr):
    """Of mean square 1, times its weight if it has one; ``NORM`` rounds 1 nothing, 2 the result, 3 both."""
    parts = times(head, root_of(head, width, eps))
    if NORM == 3:
        parts = rounded(parts, dtype)
    if len(weight):
        parts = products(parts, weight)
    return parts if NORM == 1 else rounded(parts, dtype)


@triton.jit
def rounded(head, dtype: tl.constexpr):
    parts = ()
    for i in tl.static_range(len(head)):
        parts += (head[i].to(dtype).to(tl.float32),)
    return parts


@triton.jit
def float8(x):
    """Bits of float8 (e4m3fn) of a tile of float32: to nearest even; what is beyond its largest number becomes that.

    In integers, for GPUs and for the interpreter, which have no such conversion or one of their own.
    """
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    below = tl.minimum(size, 0x43E00000)  # 448
    # Of 23 bits behind the point 3 stay: half of the last that stays is added, less one bit where that one is even. The
    # exponent counts from -7 and no longer from -127.
    normal = ((below + 0x7FFFF + ((below >> 20) & 1)) >> 20) - (120 << 3)
    # below 2**-6 its numbers are 2**-9 apart, as those of float32 are above 2**14
    small = (below.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000  # of 16384
    code = tl.where(size > 0x7F800000, 0x7F, tl.where(below < 0x3C800000, small, normal))  # beyond infinity: NaN; 2**-6
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)  # the sign, from bit 31 to bit 7


@triton.jit
def float8_parts(rest, scale):
    """The same of channels that pass, divided by a scale."""
    parts = ()
    for i in tl.static_range(len(rest)):
        parts += (float8(tl.div_rn(rest[i].to(tl.float32), scale)),)
    return parts
