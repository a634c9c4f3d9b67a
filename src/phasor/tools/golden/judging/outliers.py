"""Single values that are off while those around them agree: a tolerance that any sound code may need hides them.

A tolerance allows for float32 angles, which are off by more the farther out, and for other roundings in half precision.
A value that none of these gives, among others that agree to the last bits, is wrong.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..writing.tensors import WIDEST
from .rounding import CLOSE, step, unsound

if TYPE_CHECKING:
    from .comparison import Comparison

FEW = 0.01  # of all values
SINGLE = 4  # values at most; more of them are an arithmetic that is not known here


def slips(c: "Comparison") -> Tensor:
    """Where a value is inside the tolerance, and does not agree among values that do."""
    if c.dtype != torch.bfloat16 and c.tolerance.relative > CLOSE:  # somebody allows for half precision
        return torch.zeros_like(c.beyond)
    loose = ~agrees(c) & ~c.beyond
    if not loose.any():
        return loose
    if c.case is None:
        return loose & (int((loose | c.beyond).sum()) <= max(1, FEW * loose.numel()))
    if int((c.got.to(c.dtype).double() != c.expected).sum()) == 1:  # all others to the bit
        return loose
    if float(loose.double().mean()) > 1 / 2:
        return torch.zeros_like(loose)
    models_own = c.short.startswith("model.")
    odd = loose & unsound(c, inside=models_own)
    if int((odd | c.beyond).sum()) <= SINGLE:
        return odd
    rounds_inside = not models_own and not (loose & unsound(c, inside=True)).any()
    return odd & rounds_inside


def agrees(c: "Comparison") -> Tensor:
    """Where a value is the golden one, but for the last bits."""
    apart, size = (c.got - c.expected).abs(), c.expected.abs()
    if not c.dtype.is_floating_point or c.angles.ndim == 0:
        return apart <= CLOSE * size
    reach = c.angles.clamp(max=1.0)  # a small angle is known as well as its frequency
    close = (WIDEST if c.short.endswith("_out") else 1.0) * CLOSE * (size + reach) + 1e-9
    near = apart <= close
    if c.unrounded is not None:
        near = near | (
            (c.got - c.unrounded).abs() <= step(torch.maximum(size, c.got.abs()), torch.bfloat16) / 2 + close
        )
    return near if c.doubtful is None else near | c.doubtful


def of_channels(pairs: Tensor, columns: Tensor, shape: torch.Size) -> Tensor:
    """What is true of pairs ``[S, P]``, for both channels of each, in a tensor of this shape."""
    found = torch.zeros(shape, dtype=torch.bool)
    for side in columns:
        found[..., side] = pairs
    return found
