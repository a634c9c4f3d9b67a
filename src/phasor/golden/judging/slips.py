"""Single values that are off while those around them agree: a tolerance that any sound code may need hides them.

A tolerance allows for float32 angles, which are off by more the farther out, and for other roundings in half precision.
But code that is off for such a reason turns a whole pair by another angle, all heads alike, and keeps its length; or it
is off all over the tensor. A value that is off by itself, among others that agree to the last bits, is wrong.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..writing.tensors import WIDEST

if TYPE_CHECKING:
    from .comparison import Comparison

FAR = 20.0  # radians: from here on one rounding step in a float32 frequency shows in cos and sin
FEW = 0.01  # of all values
CLOSE = 1e-6  # float32 values that were formed by the same arithmetic, on whichever machine


def slips(c: "Comparison") -> Tensor:
    """Where a value is inside the tolerance, and does not agree among values that do."""
    if c.dtype != torch.bfloat16 and c.tolerance.relative > CLOSE:  # somebody allows for half precision
        return torch.zeros_like(c.beyond)
    loose = ~agrees(c) & ~c.beyond
    count = int((loose | c.beyond).sum())
    if count <= 1 or not loose.any():
        return loose
    near = (c.angles < FAR).expand(loose.shape)
    few = count <= FEW * loose.numel()
    if c.columns is not None and c.dtype == torch.bfloat16:
        return loose & ~_whole_pairs(loose, c.columns) & few
    apart = torch.zeros_like(loose)
    if c.columns is not None:
        apart = _not_turned(c, c.columns)
    elif c.beside is not None and c.dtype != torch.bfloat16:
        length = torch.hypot(c.got, c.beside)  # the attention factor, everywhere
        apart = (length - length.median()).abs() > 4 * CLOSE * length.median()
    return loose & (apart | (near & few))


def agrees(c: "Comparison") -> Tensor:
    """Where a value is the golden one, but for the last bits."""
    apart, size = (c.got - c.expected).abs(), c.expected.abs()
    if not c.dtype.is_floating_point or c.angles.ndim == 0:
        return apart <= CLOSE * size
    reach = c.angles.clamp(max=1.0)  # a small angle is known as well as its frequency
    close = (WIDEST if c.short.endswith("_out") else 1.0) * CLOSE * (size + reach) + 1e-9
    near = apart <= close
    if c.unrounded is not None:
        step = 2.0 ** torch.maximum(size, c.got.abs()).clamp(min=2.0**-100).log2().floor() * 2.0**-7
        near = near | ((c.got - c.unrounded).abs() <= step / 2 + close)
    return near if c.doubtful is None else near | c.doubtful


def _whole_pairs(loose: Tensor, columns: Tensor) -> Tensor:
    """Where at least half of the values of a token's pair do not agree, in all heads and both channels."""
    both = torch.stack([loose[..., side] for side in columns]).double().mean((0, 1, 2)) >= 0.5  # [S, P]
    return of_channels(both, columns, loose.shape)


def _not_turned(c: "Comparison", columns: Tensor) -> Tensor:
    """The value of each token's pair that fits worst, where no angle turns the golden pair into the one that came."""
    golden, got = (torch.complex(x[..., columns[0]], x[..., columns[1]]) for x in (c.expected, c.got))
    turn = (got * golden.conj()).sum((0, 1), keepdim=True)
    rest = got - golden * turn / turn.abs().clamp(min=1e-30)
    loose = ~agrees(c)
    parts = torch.stack((rest.real.abs(), rest.imag.abs())) * torch.stack([loose[..., side] for side in columns])
    worst = parts.amax((0, 1, 2))  # [S, P]
    found = torch.zeros_like(loose)
    for part, side in zip(parts, columns, strict=True):
        found[..., side] = (part == worst) & (worst > 8 * CLOSE)
    return found


def of_channels(pairs: Tensor, columns: Tensor, shape: torch.Size) -> Tensor:
    """What is true of pairs ``[S, P]``, for both channels of each, in a tensor of this shape."""
    found = torch.zeros(shape, dtype=torch.bool)
    for side in columns:
        found[..., side] = pairs
    return found
