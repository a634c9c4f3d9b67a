"""The arithmetic of `reference` for eager mode on a CPU, without its large temporaries: the same bits, sooner.

Eager PyTorch runs one operation at a time over whole tensors, so widened intermediates travel to memory and back.
Here they live for one block of tokens, which fits the cache. The backward pass is the transposed rotation.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..pairs import rotary_slice, split
from . import reference

BLOCK = 2**17  # elements of x per block: 512 KiB once widened to float32


class Layout(NamedTuple):
    """Where the pairs lie and what the result is, as `reference.rotate` has it."""

    interleaved: bool = False
    trailing: bool = False
    blocks: int = 1
    permuted: bool = False
    promoted: bool = False


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, sequence_dim: int = -2, **layout: Any) -> Tensor:
    """`reference.rotate`, with ``sequence_dim`` the dimension of ``x``, ``cos`` and ``sin`` that holds the tokens.

    Autograd keeps cos and sin. They must not need a gradient themselves: learned frequencies go through `reference`, as
    do rotations with ``second`` tables.

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 1), torch.ones(1, 1)).tolist()
    [[0.0, 1.0]]
    """
    learns = x.requires_grad and torch.is_grad_enabled()
    if x.numel() <= 2 * BLOCK:  # in cache anyway
        if not learns and _is_halves(**layout) and 2 * cos.shape[-1] == x.shape[-1]:
            return _whole_rows(x, cos, sin)
        return reference.rotate(x, cos, sin, **layout)
    if learns:
        y: Tensor = _Rotate.apply(x, cos, sin, sequence_dim, *Layout(**layout))
        return y
    return _in_blocks(x, cos, sin, sequence_dim, Layout(**layout))


def _is_halves(
    interleaved: bool = False, trailing: bool = False, blocks: int = 1, permuted: bool = False, promoted: bool = False
) -> bool:
    return blocks == 1 and not (interleaved or permuted or promoted)


class _Rotate(torch.autograd.Function):
    generate_vmap_rule = True  # for batched gradients; vmap itself takes the plain expression

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, sequence_dim: int, *layout: Any) -> Tensor:
        return _in_blocks(x, cos, sin, sequence_dim, Layout(*layout))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, cos, sin, ctx.sequence_dim, *layout = inputs
        ctx.layout, ctx.dtype = Layout(*layout), x.dtype
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        # the transpose reads what the forward wrote, and writes what it read
        written = ctx.layout._replace(interleaved=ctx.layout.interleaved != ctx.layout.permuted)
        turned_back = _Rotate.apply(grad, cos, -sin, ctx.sequence_dim, *written)
        return turned_back.to(ctx.dtype), None, None, None, *(None for _ in Layout._fields)


def _whole_rows(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Halves at full width: two products over whole rows, ``x [c c] + roll(x) [-s s]``, not four over half rows."""
    wide = x.to(torch.promote_types(x.dtype, cos.dtype)).contiguous()
    swapped = wide.roll(cos.shape[-1], -1)
    return (wide * torch.cat((cos, cos), -1)).add_(swapped.mul_(torch.cat((-sin, sin), -1))).to(x.dtype)


def _in_blocks(x: Tensor, cos: Tensor, sin: Tensor, sequence_dim: int, layout: Layout) -> Tensor:
    dtype = torch.promote_types(x.dtype, cos.dtype) if layout.promoted else x.dtype
    y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    block = max(1, BLOCK * x.shape[sequence_dim] // max(1, x.numel()))
    parts = (t.split(block, sequence_dim) for t in (y, x, cos, sin))
    for y_part, x_part, cos_part, sin_part in zip(*parts, strict=True):
        _write(y_part, x_part, cos_part, sin_part, layout)
    return y


def _write(y: Tensor, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> None:
    width = 2 * cos.shape[-1]
    if width < x.shape[-1]:
        rest = slice(0, -width) if layout.trailing else slice(width, None)
        y[..., rest] = x[..., rest]
        turned = rotary_slice(x.shape[-1], width, layout.trailing)
        y, x = y[..., turned], x[..., turned]
    if layout.blocks > 1:  # a dimension of their own, so that halves are views
        y, x, cos, sin = (t.unflatten(-1, (layout.blocks, -1)) for t in (y, x, cos, sin))
    a, b = split(x.to(torch.promote_types(x.dtype, cos.dtype)), layout.interleaved)
    y_a, y_b = split(y, layout.interleaved != layout.permuted)
    y_a.copy_((a * cos).sub_(b * sin))
    y_b.copy_((a * sin).add_(b * cos))
