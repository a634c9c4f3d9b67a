"""The rotation of pairs as an expression of torch: what every kernel means."""

import torch
from torch import Tensor

from ..layout import Layout


def rotated(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: Layout,
    promoted: bool = False,
    second: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Rotate the pairs of the last dimension: ``(a, b) -> (a cos - b sin, a sin + b cos)``, counter-clockwise.

    ``x [..., head_dim]``; ``cos`` and ``sin`` broadcast to ``[..., P]``. The other channels are copied. A new tensor in
    the dtype of ``x``; half precision is widened to the dtype of cos and sin (float32, unless they were rounded on
    purpose), computed, and rounded once, or not at all if ``promoted``. ``second`` is cos and sin for the second of the
    two results. Autograd keeps cos and sin, never ``x``.

    >>> x, quarter = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0]])
    >>> rotated(x, 0 * quarter, quarter, Layout(head_dim=2)).tolist()
    [[0.0, 1.0]]
    """
    a, b = layout.split(layout.turned(x).to(torch.promote_types(x.dtype, cos.dtype)))
    cos_2, sin_2 = (cos, sin) if second is None else second
    y = layout.written().join(a * cos - b * sin, a * sin_2 + b * cos_2)
    # joining keeps the order of axes of an image's channels
    return layout.within(x, y if promoted else y.to(x.dtype)).contiguous()
