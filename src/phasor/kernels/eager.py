"""The arithmetic of `reference` for eager mode, without its large temporaries: the same bits, sooner.

Eager PyTorch runs one operation at a time over whole tensors, so widened intermediates travel to memory and back.
Here they live for one block of tokens, which fits the cache. The backward pass is the transposed rotation.
"""

from typing import Any

import torch
from torch import Tensor

from ..pairs import rotary_slice, split
from . import reference

BLOCK = 2**17  # elements of x per block: 512 KiB once widened to float32


def rotate(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False, trailing: bool = False, sequence_dim: int = -2
) -> Tensor:
    """`reference.rotate`, with ``sequence_dim`` the dimension of ``x``, ``cos`` and ``sin`` that holds the tokens.

    Autograd keeps cos and sin. They must not need a gradient themselves: learned frequencies go through `reference`.

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 1), torch.ones(1, 1)).tolist()
    [[0.0, 1.0]]
    """
    learns = x.requires_grad and torch.is_grad_enabled()
    if x.numel() <= 2 * BLOCK:  # in cache anyway
        if not learns and not interleaved and 2 * cos.shape[-1] == x.shape[-1]:
            return _whole_rows(x, cos, sin)
        return reference.rotate(x, cos, sin, interleaved=interleaved, trailing=trailing)
    if learns:
        y: Tensor = _Rotate.apply(x, cos, sin, interleaved, trailing, sequence_dim)
        return y
    return _in_blocks(x, cos, sin, interleaved, trailing, sequence_dim)


class _Rotate(torch.autograd.Function):
    generate_vmap_rule = True  # for batched gradients; vmap itself takes the plain expression

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, *layout: Any) -> Tensor:
        return _in_blocks(x, cos, sin, *layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, cos, sin, *ctx.layout = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        return _Rotate.apply(grad, cos, -sin, *ctx.layout), None, None, None, None, None


def _whole_rows(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Halves at full width: two products over whole rows, ``x [c c] + roll(x) [-s s]``, not four over half rows."""
    wide = x.to(torch.promote_types(x.dtype, cos.dtype)).contiguous()
    swapped = wide.roll(cos.shape[-1], -1)
    return (wide * torch.cat((cos, cos), -1)).add_(swapped.mul_(torch.cat((-sin, sin), -1))).to(x.dtype)


def _in_blocks(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, trailing: bool, sequence_dim: int) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = max(1, BLOCK * x.shape[sequence_dim] // max(1, x.numel()))
    blocks = (t.split(block, sequence_dim) for t in (y, x, cos, sin))
    for y_part, x_part, cos_part, sin_part in zip(*blocks, strict=True):
        _write(y_part, x_part, cos_part, sin_part, interleaved, trailing)
    return y


def _write(y: Tensor, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, trailing: bool) -> None:
    width = 2 * cos.shape[-1]
    if width < x.shape[-1]:
        rest = slice(0, -width) if trailing else slice(width, None)
        y[..., rest] = x[..., rest]
        turned = rotary_slice(x.shape[-1], width, trailing)
        y, x = y[..., turned], x[..., turned]
    a, b = split(x.to(torch.promote_types(x.dtype, cos.dtype)), interleaved)
    y_a, y_b = split(y, interleaved)
    y_a.copy_((a * cos).sub_(b * sin))
    y_b.copy_((a * sin).add_(b * cos))
