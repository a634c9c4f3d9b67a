"""The arithmetic of `reference` for eager mode on a CPU, without its large temporaries: the same bits, sooner.

Eager PyTorch runs one operation at a time over whole tensors, so widened intermediates travel to memory and back.
Here they live for one block of tokens, which fits the cache. The backward pass is the transposed rotation.
"""

from typing import Any

import torch
from torch import Tensor

from ..layout import Layout
from ..rotation import Rotation
from . import reference
from .base import Angles, Kernel, Order, Pair, one_angle, tables_of, unseen

BLOCK = 2**17  # elements of x per block: 512 KiB once widened to float32
FEW = 2**17  # elements of q and k together below which launching operations costs more than moving data


class Eager(Kernel):
    """Plain tensors in eager mode on a CPU: in blocks, and together where they are small."""

    name = "eager"
    about = "plain tensors in eager mode on a CPU, in blocks that fit its cache"

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        if reason := unseen(q, k) or one_angle(angles):
            return reason
        if not q.is_cpu:
            return f"its blocks fit the cache of a CPU, and on {q.device} each would be a launch of its own"
        return ""

    def turn(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        rotation = tables_of(angles)
        if out is None and k is not None and _are_few(q, k, rotation, order):
            # costs what its operations cost to launch: launch them once for both
            both = _turned(torch.cat((q, k), dim=order.heads), rotation, order, None)
            of_q, of_k = q.shape[order.heads], k.shape[order.heads]
            first, second = both.narrow(order.heads, 0, of_q), both.narrow(order.heads, of_q, of_k)
            apart = torch.contiguous_format  # a tensor of its own: writing into q must not reach k
            return first.clone(memory_format=apart), second.clone(memory_format=apart)
        y, z = out or (None, None)
        return _turned(q, rotation, order, y), None if k is None else _turned(k, rotation, order, z)


def _are_few(q: Tensor, k: Tensor, rotation: Rotation, order: Order) -> bool:
    """Whether q and k are so small, and so alike, that they may be rotated as one tensor."""
    return (
        q.numel() + k.numel() <= FEW
        and not rotation.per_head
        and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad))
        and q.ndim == k.ndim
        and q.shape[: -3 if order.batch is None else -2] == k.shape[: -3 if order.batch is None else -2]
    )


def _turned(x: Tensor, rotation: Rotation, order: Order, out: Tensor | None) -> Tensor:
    """x turned; autograd keeps cos and sin, which must not need a gradient themselves."""
    layout, promoted = rotation.layout, rotation.promoted
    learns = x.requires_grad and torch.is_grad_enabled()
    in_cache = x.numel() <= 2 * BLOCK
    if in_cache and layout.plain and not learns and not promoted:
        y = _whole_rows(x, *order.line_up(rotation.rows, rotation.per_head))
        return y if out is None else out.copy_(y)
    cos, sin = order.line_up((rotation.cos, rotation.sin), rotation.per_head)
    if in_cache:
        y = reference.turned(x, cos, sin, layout, promoted)
        return y if out is None else out.copy_(y)
    if learns:
        blocks: Tensor = _Blocks.apply(x, cos, sin, order.tokens, layout, promoted)
        return blocks
    return _in_blocks(x, cos, sin, order.tokens, layout, promoted, out)


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
        turned_back = _Blocks.apply(grad, cos, -sin, ctx.tokens, ctx.layout.transposed(), ctx.promoted)
        return turned_back.to(ctx.dtype), None, None, None, None, None


def _whole_rows(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Halves at full width: two products over whole rows, ``x [c c] + roll(x) [-s s]``, not four over half rows."""
    wide = _filled(x).to(torch.promote_types(x.dtype, cos.dtype)).contiguous()
    swapped = wide.roll(cos.shape[-1] // 2, -1)
    return (wide * cos).add_(swapped.mul_(sin)).to(x.dtype)


def _in_blocks(
    x: Tensor, cos: Tensor, sin: Tensor, tokens: int, layout: Layout, promoted: bool, out: Tensor | None = None
) -> Tensor:
    x, y = _filled(x), out
    if y is None:
        dtype = torch.promote_types(x.dtype, cos.dtype) if promoted else x.dtype
        y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    block = max(1, BLOCK * x.shape[tokens] // max(1, x.numel()))
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
