"""The definition of the rotation, in plain PyTorch: traceable, differentiable, any dtype and strides."""

from typing import Any

import torch
from torch import Tensor

from ..pairs import join, rotary_slice, split


def rotate(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
    trailing: bool = False,
    blocks: int = 1,
    permuted: bool = False,
    promoted: bool = False,
    second: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Turn the pairs of the last dimension: ``(a, b) -> (a cos - b sin, a sin + b cos)``, counter-clockwise.

    ``x [..., D]``; ``cos`` and ``sin`` broadcast to ``[..., P]`` with ``2P <= D``. The other ``D - 2P`` channels are
    copied. A new tensor in the dtype of ``x``; half precision is widened to the dtype of cos and sin (float32, unless
    they were rounded on purpose), computed, and rounded once, or not at all if ``promoted``. ``second`` is cos and sin
    for the second of the two results. Autograd keeps cos and sin, never ``x``.

    >>> x, quarter = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0]])
    >>> rotate(x, 0 * quarter, quarter).tolist()
    [[0.0, 1.0]]
    """
    width = 2 * cos.shape[-1]
    if width < x.shape[-1]:
        turned = rotary_slice(x.shape[-1], width, trailing)
        layout: dict[str, Any] = {"interleaved": interleaved, "blocks": blocks, "permuted": permuted}
        y = rotate(x[..., turned], cos, sin, promoted=promoted, second=second, **layout)
        rest = x[..., : turned.start] if trailing else x[..., turned.stop :]
        return torch.cat((rest, y) if trailing else (y, rest), dim=-1)
    a, b = split(x.to(torch.promote_types(x.dtype, cos.dtype)), interleaved, blocks)
    cos_2, sin_2 = (cos, sin) if second is None else second
    y = join(a * cos - b * sin, a * sin_2 + b * cos_2, interleaved != permuted, blocks)
    return y if promoted else y.to(x.dtype)
