"""The standard operator RotaryEmbedding of ONNX (opset 23), for programs that torch.onnx.export writes."""

import torch
from torch import Tensor

from ..rotation import Rotation
from .base import Angles, Kernel, Pair, into, tables_of
from .order import Order


class Onnx(Kernel):
    """One node for q and one for k. Only by name: elsewhere it is torch's stand-in for that operator, and slow.

    cos and sin are formed by plain nodes from the positions, with attention factor and direction inside, and handed
    over as ``[batch, seq, pairs]``. Half precision is widened around the node where the spec computes in float32.
    """

    name = "onnx"
    about = "by name only: the operator RotaryEmbedding in what torch.onnx.export writes (opset 23 to 25)"

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        layout = angles.layout
        if angles.second is not None:
            return "the operator rotates both members of a pair by one angle"
        if angles.per_head:
            return "the operator has one set of tables for all heads"
        if layout.trailing and layout.rotary_dim < layout.head_dim:
            return f"the operator rotates the first channels of a head, and here the last {layout.rotary_dim} rotate"
        if layout.blocks > 1 or layout.permuted:
            return f"the operator has halves or interleaved pairs, and here they are {layout.describe()}"
        if q.ndim > 4:
            return f"the operator has one batch dimension, and q has shape {tuple(q.shape)}"
        if torch.float64 in (q.dtype, _dtype(angles)) or (k is not None and k.dtype == torch.float64):
            return "the operator has no float64"
        return ""

    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        rotation = tables_of(angles)
        y = _rotated(q, rotation, order)
        z = None if k is None else _rotated(k, rotation, order)
        return into(out, y, z)


def _dtype(angles: Angles) -> torch.dtype:
    """That of the tables, formed or not."""
    if isinstance(angles, Rotation):
        return angles.cos.dtype
    double = angles.spec.angles != "exact" and angles.spec.tables == "float64"
    return torch.float64 if double else torch.float32


def _rotated(x: Tensor, rotation: Rotation, order: Order) -> Tensor:
    from torch.onnx.ops import rotary_embedding

    layout, alone = rotation.layout, x.ndim == 3
    wide = torch.promote_types(x.dtype, rotation.cos.dtype)
    heads = x.shape[order.heads]
    rows = x.unsqueeze(0) if alone else x.transpose(0, 1) if order.batch is not None else x
    batch = rows.shape[0]
    by_heads = order.heads == -3  # [batch, heads, seq, head_dim]; else the operator wants heads flat
    tables = [t.to(wide).expand(batch, -1, -1) for t in (rotation.cos, rotation.sin)]
    y = rotary_embedding(
        (rows if by_heads else rows.flatten(-2)).to(wide),
        *tables,
        interleaved=layout.interleaved,
        num_heads=heads,
        rotary_embedding_dim=layout.rotary_dim if layout.rotary_dim < layout.head_dim else 0,
    )
    y = y if by_heads else torch.unflatten(y, -1, (heads, layout.head_dim))
    y = y.squeeze(0) if alone else y.transpose(0, 1) if order.batch is not None else y
    return (y if rotation.promoted else y.to(x.dtype)).contiguous()
