"""Operators for ONNX's own reference: those of com.microsoft, and GatherElements, which it has not for all sizes.

com.microsoft's RotaryEmbedding has other inputs than the standard one; that inside of GroupQueryAttention is split off.
Source: onnxruntime, docs/ContribOperators.md, and contrib_ops/cpu/bert/rotary_embedding.cc.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from .graph import library


def rotations_of(node: Any) -> list[Any]:
    """What a GroupQueryAttention does to q and k, as nodes; where they come in one tensor, each node is fed all of it.

    Its tables are gathered by the order of the tokens, so they are looked at from position 0.
    """
    onnx = library()
    marks = {a.name: a.i for a in node.attribute}
    query, key, *_, cos, sin, ids = [*node.input, *[""] * 10][:10]
    heads, kv = marks.get("num_heads", 0), marks.get("kv_num_heads", 0)
    name, first = node.name or node.output[0], f"{node.output[0]}/first"
    nodes = [onnx.helper.make_node("Constant", [], [first], value=onnx.numpy_helper.from_array(np.zeros(1, np.int64)))]
    packed = heads + 2 * kv
    for of, value, count in (("q", query, heads if key else packed), ("k", key or query, kv if key else packed)):
        if value:
            nodes.append(
                onnx.helper.make_node(
                    "RotaryEmbedding",
                    [value, ids or first, cos, sin],
                    [f"{node.output[0]}/{of}"],
                    name=name,
                    domain="com.microsoft",
                    interleaved=marks.get("rotary_interleaved", 0),
                    num_heads=count,
                )
            )
    return nodes


def rotated(
    x: np.ndarray,
    ids: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    is_packed_batching: int = 0,
) -> np.ndarray:
    """``x`` ``[B, S, heads * D]`` or ``[B, heads, S, D]``; tables ``[max, pairs]``; ``ids`` ``[B, S]``, or one.

    The rotation itself is the standard operator's, which is given the rows of the tables.
    """
    from onnx.reference.ops.op_rotary_embedding import rotary_embedding

    pairs = cos.shape[-1]
    batch, tokens = x.shape[0], x.shape[-2]
    heads = num_heads or x.shape[-1] // (2 * pairs)
    width = rotary_embedding_dim or (x.shape[-1] if x.ndim == 4 else x.shape[-1] // heads)
    if width != 2 * pairs:
        raise ValueError(f"it rotates {width} channels by tables of {pairs} pairs")
    if scale not in (0.0, 1.0):
        raise ValueError(f"it has the scale {scale:g}, which onnxruntime does not use")
    rows = ids.reshape(-1)[0] + np.arange(tokens) if ids.size == 1 else ids.reshape(batch, tokens)
    c, s = (np.broadcast_to(table[rows], (batch, tokens, pairs)) for table in (cos, sin))
    result: np.ndarray = rotary_embedding(x, c, s, None, interleaved, width, heads)
    return result


@lru_cache(maxsize=1)
def operators() -> list[Any]:
    library()
    from onnx.reference.op_run import OpRun

    class RotaryEmbedding(OpRun):
        op_domain = "com.microsoft"

        def _run(self, x: Any, ids: Any, cos: Any, sin: Any, **marks: Any) -> tuple[Any]:
            return (rotated(x, ids, cos, sin, **{name: value or 0 for name, value in marks.items()}),)

    class GatherElements(OpRun):
        """The reference's own takes at most 64 rows, and no fewer indices than there are elements beside the axis."""

        op_domain = ""

        def _run(self, data: Any, indices: Any, axis: int | None = None) -> tuple[Any]:
            along = (axis or 0) % data.ndim
            kept = tuple(slice(None) if i == along else slice(size) for i, size in enumerate(indices.shape))
            return (np.take_along_axis(data[kept], indices.astype(np.int64), along),)

    return [RotaryEmbedding, GatherElements]
