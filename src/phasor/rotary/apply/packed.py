"""Projections that hold queries, keys and values in one tensor."""

import torch
from torch import Tensor

from ...support.checks import whole
from ..rotation import Rotation
from . import short_ways
from .calls import apply_rotary
from .input_checks import check_tensor


def apply_rotary_qkv(
    qkv: Tensor,
    rotation: Rotation,
    *,
    num_heads: int | None = None,
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Rotate the queries and keys in a packed projection; values are copied.

    ``qkv`` is ``[..., seq, 3, heads, head_dim]``, or with ``num_heads``, the number of query heads,
    ``[..., seq, num_heads + 2 * kv_heads, head_dim]`` (grouped queries: all heads of q, then of k, then of v). A new
    tensor, or ``out``, which may be ``qkv`` itself: then its values are not touched.

    Raises ``ValueError`` for a shape that does not fit, and for all that `apply_rotary` refuses.

    >>> quarter = Rotation.from_tables(torch.zeros(1, 1), torch.ones(1, 1), form="half")
    >>> apply_rotary_qkv(torch.tensor([1.0, 0.0]).expand(1, 3, 1, 2), quarter).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    """
    done = short_ways.packed(kernel, qkv, rotation, num_heads, out)
    if done is not None:
        return done
    check_tensor("qkv", qkv)
    if num_heads is not None:
        whole("num_heads", num_heads, at_least=1)
    if out is not None and (not isinstance(out, Tensor) or out.shape != qkv.shape):
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"out must have the shape of qkv, {tuple(qkv.shape)}, got {got}")
    if num_heads is None:
        if qkv.ndim < 4 or qkv.shape[-3] != 3:
            raise ValueError(
                "qkv must be [..., seq, 3, heads, head_dim], or [..., seq, heads, head_dim] with num_heads= (of q), "
                f"got shape {tuple(qkv.shape)}"
            )
        rotating, heads = 2 * qkv.shape[-2], qkv.flatten(-3, -2)
        if out is None:
            return torch.unflatten(_rotated(heads, rotation, rotating, kernel, None), -2, qkv.shape[-3:-1])
        _rotated(heads, rotation, rotating, kernel, _flat(out))
        return out
    if qkv.ndim < 3 or qkv.shape[-2] <= num_heads or (qkv.shape[-2] - num_heads) % 2:
        raise ValueError(
            f"qkv must have num_heads={num_heads} heads of q and as many of k as of v, got shape {tuple(qkv.shape)}"
        )
    return _rotated(qkv, rotation, (qkv.shape[-2] + num_heads) // 2, kernel, out)


def _flat(out: Tensor) -> Tensor:
    heads, between = out.shape[-2], out.stride(-3)
    if heads > 1 and between != heads * out.stride(-2):
        raise ValueError(f"out must have q, k and v next to each other in memory, got strides {out.stride()}")
    return out.flatten(-3, -2)


def _rotated(qkv: Tensor, rotation: Rotation, rotating: int, kernel: str, out: Tensor | None) -> Tensor:
    qk, v = qkv[..., :rotating, :], qkv[..., rotating:, :]
    if out is None:
        return torch.cat((apply_rotary(qk, rotation, tensor_format="bshd", kernel=kernel), v), dim=-2)
    apply_rotary(qk, rotation, tensor_format="bshd", kernel=kernel, out=out[..., :rotating, :])
    out[..., rotating:, :].copy_(v)
    return out
