"""Eager mode with the bits of `reference`, but faster: in blocks that fit the cache of a CPU, in few launches on a GPU.

Eager PyTorch runs one operation at a time over whole tensors, so widened intermediates travel to memory and back. On a
CPU they live here for one block of tokens, which fits the cache; the backward pass is the transposed rotation. What
costs no more than to launch its operations, as few tokens do, and all on a GPU, takes as few of them as there can be.
"""

from typing import Any

import torch
from torch import Tensor

from ..layout import Layout
from ..rotation import Rotation
from . import reference
from .base import Angles, Kernel, Pair, into, one_angle, result_dtype, tables_of, tensors_of, unseen
from .order import Order

BLOCK = 2**17  # elements of x per block: 512 KiB once widened to float32
FEW = 2**17  # elements of q and k together below which launching operations costs more than moving data


class Eager(Kernel):
    """Plain tensors in eager mode: in blocks on a CPU, and q and k together where launches cost more than bytes."""

    name = "eager"
    about = "plain tensors in eager mode: in blocks that fit the cache of a CPU, in few launches elsewhere"

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        if reason := unseen(q, k, *tensors_of(angles)) or one_angle(angles):
            return reason
        if not q.is_cpu and _learns(q, k):
            return f"its gradients go back in blocks for the cache of a CPU, and on {q.device} each would be a launch"
        return ""

    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        if out is not None and any(y is not None and y.is_neg() for y in out):
            # torch's copy_ of another dtype forgets the lazy sign of what it writes to (z.conj().imag): round first
            return into(out, *self.rotate(q, k, angles, order, None))
        rotation = tables_of(angles)
        if k is not None and _go_together(q, k, rotation, order):
            y, z = _together(q, k, rotation, order)
            if out is not None:
                return into(out, y, z)
            dtype, apart = result_dtype(q, rotation), torch.contiguous_format  # writing into q must not reach k
            return y.to(dtype, copy=True, memory_format=apart), z.to(dtype, copy=True, memory_format=apart)
        y, z = out or (None, None)  # type: ignore[assignment]
        return _rotated(q, rotation, order, y), None if k is None else _rotated(k, rotation, order, z)


def _learns(q: Tensor, k: Tensor | None) -> bool:
    return torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad))


def _go_together(q: Tensor, k: Tensor, rotation: Rotation, order: Order) -> bool:
    """Whether q and k are rotated as one tensor: they are alike, and launches cost more than a copy of them."""
    batch = -3 if order.batch is None else -2
    if q.ndim != k.ndim or q.shape[:batch] != k.shape[:batch] or rotation.per_head or _learns(q, k):
        return False
    return not q.is_cpu or q.numel() + k.numel() <= FEW


def _together(q: Tensor, k: Tensor, rotation: Rotation, order: Order) -> tuple[Tensor, Tensor]:
    """q and k rotated, not yet rounded: views of one tensor."""
    both = _unrounded(torch.cat((q, k), dim=order.heads), rotation, order)
    y, z = both.split((q.shape[order.heads], k.shape[order.heads]), order.heads)
    return y, z


def _rotated(x: Tensor, rotation: Rotation, order: Order, out: Tensor | None) -> Tensor:
    """x rotated; autograd keeps cos and sin, which must not need a gradient themselves."""
    learns, layout = _learns(x, None), rotation.layout
    if not learns and (x.numel() <= 2 * BLOCK or not x.is_cpu):
        y = _unrounded(x, rotation, order)
        return y.to(result_dtype(x, rotation)) if out is None else out.copy_(y)
    cos, sin = order.line_up((rotation.cos, rotation.sin), rotation.per_head)
    if x.numel() <= 2 * BLOCK:
        return reference.rotated(x, cos, sin, layout, rotation.promoted)
    if learns:
        blocks: Tensor = _Blocks.apply(x, cos, sin, order.tokens, layout, rotation.promoted)
        return blocks
    return _in_blocks(x, cos, sin, order.tokens, layout, rotation.promoted, out)


def _unrounded(x: Tensor, rotation: Rotation, order: Order) -> Tensor:
    """x rotated, in the dtype in which it was: of halves of whole heads by two products, not four over half rows."""
    if not rotation.layout.plain:
        cos, sin = order.line_up((rotation.cos, rotation.sin), rotation.per_head)
        return reference.rotated(x, cos, sin, rotation.layout, promoted=True)
    cos, sin = order.line_up(rotation.rows, rotation.per_head)
    x, pairs = _filled(x).contiguous(), rotation.layout.pairs
    if not x.is_cpu:  # products widen what they read, to the same values
        return (x * cos).add_(x.roll(pairs, -1) * sin)
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    return (wide * cos).add_(wide.roll(pairs, -1).mul_(sin))


class _Blocks(torch.autograd.Function):
    generate_vmap_rule = True  # for batched gradients; vmap itself takes the plain expression

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, tokens: int, layout: Layout, promoted: bool) -> Tensor:
        return _in_blocks(x, cos, sin, tokens, layout, promoted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, cos, sin, ctx.tokens, ctx.layout, ctx.promoted = inputs
        ctx.dtype = x.dtype
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        rotated_back = _Blocks.apply(grad, cos, -sin, ctx.tokens, ctx.layout.transposed(), ctx.promoted)
        return rotated_back.to(ctx.dtype), None, None, None, None, None


def _in_blocks(
    x: Tensor, cos: Tensor, sin: Tensor, tokens: int, layout: Layout, promoted: bool, out: Tensor | None = None
) -> Tensor:
    x, cos, sin, y = _filled(x), _filled(cos), _filled(sin), out
    if y is None:
        dtype = torch.promote_types(x.dtype, cos.dtype) if promoted else x.dtype
        y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    block = max(1, BLOCK * x.shape[tokens] // max(1, x.numel()))  # tokens that have BLOCK elements together
    parts = (t.split(block, tokens) for t in (y, x, cos, sin))
    for y_part, x_part, cos_part, sin_part in zip(*parts, strict=True):
        _write(y_part, x_part, cos_part, sin_part, layout, out is None)
    return y


def _filled(x: Tensor) -> Tensor:
    """Zeros that autograd makes have no memory, and neither have their products: nothing can be added in place."""
    return x.clone() if x._is_zerotensor() else x


def _write(y: Tensor, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, new: bool) -> None:
    if layout.rotary_dim < layout.head_dim:
        y[..., layout.passing] = x[..., layout.passing]
    a, b = layout.views(layout.turned(x).to(torch.promote_types(x.dtype, cos.dtype)))
    cos, sin = layout.per_block(cos), layout.per_block(sin)
    y_a, y_b = layout.written().views(y)
    first = (a * cos).sub_(b * sin)
    if new:  # written while it is in the cache; else y may be x
        first = y_a.copy_(first)
    y_b.copy_((a * sin).add_(b * cos))
    if not new:
        y_a.copy_(first)
