"""Operators of ONNX as calls of torch: those that graphs with attention are made of. What is not here is not guessed.

Sources: onnx/docs/Operators.md, and for com.microsoft onnxruntime/docs/ContribOperators.md.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 12: torch.uint32, 13: torch.uint64, 16: torch.bfloat16,
}  # fmt: skip
BIGGEST = 2**27  # elements of one value


class NotShown(Exception):
    """Why a part of a graph could not be run or read, as a clause."""


class Unknown(NotShown):
    """An operator that is not in this table."""


class TableEnds(NotShown):
    """A row is asked for behind the ``rows`` that a table has."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"a row is asked for that its table of {rows:,} rows has not")
        self.rows = rows


def cannot(reason: str) -> Any:
    raise NotShown(reason)


def ints(values: Any) -> list[int]:
    """
    >>> ints(torch.tensor([[2], [3]]))
    [2, 3]
    """
    return values.reshape(-1).tolist() if isinstance(values, Tensor) else list(values)


def small(shape: Sequence[int]) -> list[int]:
    """The sizes of a value that may be made: a few bytes of a file can ask for any number of elements."""
    if math.prod(shape) > BIGGEST:
        raise NotShown(f"a value of {' x '.join(map(str, shape))} is too large for a table")
    return list(shape)


def projected(like: Tensor, lead: Sequence[int], channels: int) -> Tensor:
    """A value ``[*lead, channels]`` for which no weights are read: what a rotation does is the same for all values."""
    weight = torch.linspace(-1, 1, 2 * channels).reshape(channels, 2).to(like.dtype)
    return functional.linear(torch.ones(*lead, 2, dtype=like.dtype), nn.Parameter(weight, requires_grad=False))


def shifted(x: Tensor, by: Tensor, direction: bytes) -> Tensor:
    """64 bits without a sign, which torch does not shift."""
    if x.dtype != torch.uint64:
        return x << by if direction == b"LEFT" else x >> by
    bits, by = x.view(torch.int64), by.view(torch.int64)
    right = torch.where(by == 0, bits, (bits >> by) & ~(torch.tensor(-1) << (64 - by)))
    return (bits << by if direction == b"LEFT" else right).view(torch.uint64)


def filled(shape: Tensor, value: Tensor | None = None) -> Tensor:
    value = torch.zeros(1) if value is None else value
    return torch.full(small(ints(shape)), value.item(), dtype=value.dtype)


def counted(start: Tensor, end: Tensor, by: Tensor) -> Tensor:
    small([max(0, math.ceil((end - start) / by))])
    return torch.arange(start.item(), end.item(), by.item(), dtype=start.dtype)


def rows_of(x: Tensor, at: Tensor, axis: int = 0) -> Tensor:
    axis, size = axis % x.ndim, x.shape[axis]
    if at.numel() and int(at.max()) >= size:
        raise TableEnds(size)
    rows = torch.index_select(x, axis, at.reshape(-1) % size)
    return rows.reshape([*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]])


def picked(x: Tensor, at: Tensor, batch_dims: int = 0) -> Tensor:
    if batch_dims:
        raise NotShown("it has batch_dims")
    if at.shape[-1] == 1 and at.numel():
        return rows_of(x, at[..., 0])
    return x[tuple(at.unbind(-1))]


def gemm(a: Tensor, b: Tensor, c: Any = 0.0, alpha: float = 1.0, beta: float = 1.0, **marks: int) -> Tensor:
    """What it multiplies by is taken for weights, also where an expert's are picked: it projects."""
    weight = nn.Parameter(alpha * (b if marks.get("transB") else b.mT), requires_grad=False)
    return functional.linear(a.mT if marks.get("transA") else a, weight) + beta * c


def layer_norm(x: Tensor, scale: Tensor, bias: Any = None, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> Tensor:
    return functional.layer_norm(x, x.shape[axis:], scale.expand(x.shape[axis:]), bias, epsilon)


def rms_norm(x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, **_: int) -> Tensor:
    return functional.rms_norm(x, x.shape[axis:], scale.expand(x.shape[axis:]), epsilon)


def reduced(of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(x: Tensor, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        if axes is None and noop_with_empty_axes:
            return x
        return of(x, dim=tuple(range(x.ndim) if axes is None else ints(axes)), keepdim=bool(keepdims))

    return call


def cut(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
    places = range(len(ints(starts))) if axes is None else ints(axes)
    by = [1] * len(places) if steps is None else ints(steps)
    for axis, start, end, step in zip(places, ints(starts), ints(ends), by, strict=True):
        if step < 0:
            raise NotShown("it cuts backwards")
        x = torch.ops.aten.slice.Tensor(x, axis, start, min(end, x.shape[axis]), step)
    return x


def unsqueezed(x: Tensor, axes: Any) -> Tensor:
    count = x.ndim + len(ints(axes))
    for axis in sorted(a % count for a in ints(axes)):
        x = x.unsqueeze(axis)
    return x


def rotated(x: Tensor, cos: Tensor, sin: Tensor, at: Tensor | None = None, **marks: int) -> Tensor:
    """The standard operator: ``x`` ``[B, heads, S, D]`` or ``[B, S, heads * D]``, tables of rows or of each token."""
    cos, sin = ((t if at is None else rows_of(t, at)).unsqueeze(1) for t in (cos, sin))
    heads = x if x.ndim == 4 else apart(x, marks.get("num_heads", 0))
    width = marks.get("rotary_embedding_dim", 0) or heads.shape[-1]
    if width != 2 * cos.shape[-1]:
        raise NotShown(f"it rotates {width} channels by tables of {cos.shape[-1]} pairs")
    turning, rest, pairs = heads[..., :width], heads[..., width:], marks.get("interleaved")
    a, b = (turning[..., 0::2], turning[..., 1::2]) if pairs else turning.chunk(2, -1)
    both = cos * a - sin * b, sin * a + cos * b
    turned = torch.cat((torch.stack(both, -1).flatten(-2) if pairs else torch.cat(both, -1), rest), -1)
    return turned if x.ndim == 4 else together(turned)


def microsoft_rotated(x: Tensor, at: Tensor, cos: Tensor, sin: Tensor, scale: float = 1.0, **marks: int) -> Tensor:
    """Of com.microsoft: its positions come before its tables, and one position is that of the first token."""
    if scale not in (0.0, 1.0):
        raise NotShown(f"it has the scale {scale:g}, which onnxruntime does not use")
    at = at.reshape(1, 1) + torch.arange(x.shape[-2]) if at.numel() == 1 else at
    heads = marks.pop("num_heads", 0) or x.shape[-1] // (2 * cos.shape[-1])
    return rotated(x, cos, sin, at.reshape(-1, x.shape[-2]).expand(x.shape[0], -1), num_heads=heads, **marks)


def apart(x: Tensor, heads: int) -> Tensor:
    """``[B, S, heads * D]`` as ``[B, heads, S, D]``."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def together(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    """The result in the form of ``q``, and what a cache would get; what is in a cache before is nothing."""
    a, k, v = (x if x.ndim == 4 else apart(x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    out = functional.scaled_dot_product_attention(a, k, v, enable_gqa=a.shape[1] != k.shape[1])
    return out if q.ndim == 4 else together(out), k, v


def grouped(q: Tensor, k: Any, v: Any, *more: Any, num_heads: int, kv_num_heads: int, **marks: Any) -> Any:
    """GroupQueryAttention, with q, k and v apart or in one tensor; positions begin with 0, where none are given."""
    counts = num_heads, kv_num_heads, kv_num_heads
    flat = (q, k, v) if k is not None else torch.split(q, [n * q.shape[-1] // sum(counts) for n in counts], -1)
    q, k, v = (apart(x, n) for x, n in zip(flat, counts, strict=True))
    if marks.get("do_rotary"):
        cos, sin, at = (*more, None)[4:7]
        at = torch.zeros(1, dtype=torch.int64) if at is None else at
        q, k = (microsoft_rotated(x, at, cos, sin, interleaved=marks.get("rotary_interleaved", 0)) for x in (q, k))
    out, *kept = attended(q, k, v, num_heads, kv_num_heads)
    return together(out), *kept


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Add": torch.add, "And": torch.logical_and, "BitwiseAnd": torch.bitwise_and,
    "BitwiseNot": torch.bitwise_not, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor,
    "Ceil": torch.ceil, "Cos": torch.cos,
    "Div": lambda a, b: a / b if a.is_floating_point() else a.div(b, rounding_mode="trunc"),
    "Equal": torch.eq, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "Greater": torch.gt,
    "GreaterOrEqual": torch.ge, "IsNaN": torch.isnan, "Less": torch.lt, "LessOrEqual": torch.le, "Log": torch.log,
    "Max": lambda *xs: reduce(torch.maximum, xs), "Min": lambda *xs: reduce(torch.minimum, xs),
    "Mod": lambda a, b, fmod=0: torch.fmod(a, b) if fmod else torch.remainder(a, b), "Mul": torch.mul,
    "Neg": torch.neg, "Not": torch.logical_not, "Or": torch.logical_or, "Pow": torch.pow,
    "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid,
    "Sign": torch.sign, "Sin": torch.sin, "Softplus": functional.softplus, "Sqrt": torch.sqrt, "Sub": torch.sub,
    "Sum": lambda *xs: reduce(torch.add, xs), "Tan": torch.tan, "Tanh": torch.tanh, "Where": torch.where,
}  # fmt: skip
NORMS: dict[str, Callable[..., Any]] = {"LayerNormalization": layer_norm, "RMSNormalization": rms_norm}
STANDARD: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    **NORMS,
    "Attention": lambda q, k, v, *_, q_num_heads=0, kv_num_heads=0, **marks: attended(
        q, k, v, q_num_heads, kv_num_heads
    ),
    "BitShift": shifted,
    "Cast": lambda x, to, **_: cannot("torch has no such type") if to is None else x.to(to, copy=True),
    "CastLike": lambda x, like, **_: x.to(like.dtype),
    "Clip": lambda x, low=None, high=None: torch.clamp(x, low, high),
    "Concat": lambda *xs, axis: torch.cat(xs, axis),
    "ConstantOfShape": filled,
    "CumSum": lambda x, axis, **marks: (
        cannot("it sums otherwise") if any(marks.values()) else x.cumsum(int(axis), dtype=x.dtype)
    ),
    "Einsum": lambda *xs, equation: torch.einsum(equation.decode(), *xs),
    "Expand": lambda x, shape: x.expand(small(torch.broadcast_shapes(x.shape, ints(shape)))),
    "Flatten": lambda x, axis=1: x.reshape(math.prod(x.shape[:axis]), -1),
    "Gather": rows_of,
    "GatherElements": lambda x, at, axis=0: torch.gather(x, axis, at % x.shape[axis]),
    "GatherND": picked,
    "Gelu": lambda x, approximate=b"none": functional.gelu(x, approximate=approximate.decode()),
    "Gemm": gemm,
    "Identity": torch.clone,
    "MatMul": torch.matmul,
    "Range": counted,
    "ReduceMax": reduced(torch.amax),
    "ReduceMean": reduced(torch.mean),
    "ReduceMin": reduced(torch.amin),
    "ReduceSum": reduced(torch.sum),
    "Reshape": lambda x, to, allowzero=0: x.reshape(
        [n if n or allowzero else x.shape[i] for i, n in enumerate(ints(to))]
    ),
    "RotaryEmbedding": rotated,
    "ScatterElements": lambda x, at, new, axis=0, reduction=b"none": (
        torch.scatter(x, axis, at % x.shape[axis], new) if reduction == b"none" else cannot("it reduces")
    ),
    "ScatterND": lambda x, at, new, reduction=b"none": (
        torch.index_put(x, tuple(at.unbind(-1)), new, accumulate=reduction == b"add")
        if reduction in (b"none", b"add")
        else cannot("it reduces")
    ),
    "Shape": lambda x, start=0, end=None: torch.tensor(x.shape[start:end], dtype=torch.int64),
    "Slice": cut,
    "Softmax": lambda x, axis=-1: torch.softmax(x, axis),
    "Split": lambda x, sizes=None, axis=0, num_outputs=1: x.split(
        -(-x.shape[axis] // num_outputs) if sizes is None else ints(sizes), axis
    ),
    "Squeeze": lambda x, axes=None: x.squeeze() if axes is None else x.squeeze(tuple(ints(axes))),
    "Tile": lambda x, times: x.repeat(small([x.numel(), *ints(times)])[1:]),
    "TopK": lambda x, k, axis=-1, largest=1, **_: tuple(torch.topk(x, int(k), axis, bool(largest))),
    "Transpose": lambda x, perm=None: x.permute(tuple(perm or reversed(range(x.ndim)))),
    "Trilu": lambda x, k=None, upper=1: (torch.triu if upper else torch.tril)(x, 0 if k is None else int(k)),
    "Unsqueeze": unsqueezed,
}
MICROSOFT: dict[str, Callable[..., Any]] = {
    "SimplifiedLayerNormalization": rms_norm,
    "Attention": lambda *_, **marks: cannot("it rotates inside" if marks.get("do_rotary") else "it projects inside"),
    "GroupQueryAttention": grouped,
    "MatMulNBits": lambda x, *_, N, **marks: projected(x, x.shape[:-1], N),
    "MultiHeadAttention": lambda q, k, v, *_, num_heads, **marks: attended(q, k, v, num_heads, num_heads),
    "QuickGelu": lambda x, alpha=1.702: x * torch.sigmoid(alpha * x),
    "RotaryEmbedding": microsoft_rotated,
    "SkipLayerNormalization": lambda x, y, *w, **marks: (layer_norm(x + y, *w[:2], **marks), None, None, x + y),
    "SkipSimplifiedLayerNormalization": lambda x, y, w, **marks: (rms_norm(x + y, w, **marks), None, None, x + y),
}
DOMAINS = {"": STANDARD, "ai.onnx": STANDARD, "com.microsoft": MICROSOFT}
