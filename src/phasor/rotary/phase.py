"""Phase as a wrapping integer: a turn is 2**64 units of int64, so overflow is exactly the wrap of the circle.

A frequency is stored as *turns per position* in fixed point. Integer multiplication and addition wrap at 2**64 units,
which is a whole turn, so ``position * step`` is the exact phase modulo one turn at position 7 and at position 2**31
alike. This is the phase accumulator of radio engineering; nothing in it depends on a floating-point dtype.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .fixed_point import TURN_BITS

_QUARTER = TURN_BITS - 2
_EIGHTH_TURN = 1 << (TURN_BITS - 3)
RADIANS_PER_UNIT = 2 * math.pi / 2**TURN_BITS

# for |x| <= pi / 4 and z = x**2: sine x + x z (...), cosine 1 + z (...); the Cephes library (S. Moshier, sinf and cosf)
SIN = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COS = (-0.5, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)


def phases(positions: Sequence[Tensor] | Tensor, step: Sequence[Tensor] | Tensor) -> Tensor:
    """``phase = sum over axes of position * step``, exact modulo one turn.

    ``positions`` int64, one ``[..., S]`` per axis, and ``step`` int64, one ``[P]`` -> int64 ``[..., S, P]``.

    >>> phases(torch.tensor([[0, 1, 5]]), torch.tensor([[2**62]])).flatten().tolist() == [0, 2**62, 2**62]
    True
    """
    total = positions[0].unsqueeze(-1) * step[0]
    for axis in range(1, len(positions)):
        total = total + positions[axis].unsqueeze(-1) * step[axis]
    return total


def cos_sin(phase: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Cosine and sine of a phase, ``[...]`` int64 -> two ``[...]`` tensors of ``dtype`` (float32 or float64).

    The phase is split into its nearest quarter turn, which only swaps and negates, and a rest of at most an eighth of
    a turn, which is small enough for ``dtype`` to hold accurately. Quarter turns come out exact. In float32 cosine and
    sine of the rest are polynomials of products and sums, which every kernel can repeat to the bit: within 1.13e-7.

    >>> c, s = cos_sin(torch.tensor([0, 2**62, -2**63]))
    >>> c.tolist(), s.tolist()
    ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0])
    """
    # no sum of integers wraps here: a C++ compiler may take the sign of a wrapped one for that of the unwrapped one
    quarter = ((phase >> 1) + (_EIGHTH_TURN >> 1)) >> (_QUARTER - 1)  # -2 to 2; -2 and 2 are the same
    rest = (phase << 2).to(dtype) * (RADIANS_PER_UNIT / 4)  # four times as much, of which no quarter turn is left
    cos, sin = _of_eighth(rest) if dtype == torch.float32 else (rest.cos(), rest.sin())
    odd = (quarter & 1).bool()
    x, y = torch.where(odd, sin, cos), torch.where(odd, cos, sin)
    # quarter turns 1 and 2 lie left of the vertical axis; 2 and 3 (stored as -1) below the horizontal one
    flip_x, flip_y = ((quarter + 1) & 2).bool(), (quarter & 2).bool()
    return torch.where(flip_x, 0 - x, x), torch.where(flip_y, 0 - y, y)  # not -x, which would make -0.0 of 0.0


def _of_eighth(x: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin for ``|x| <= pi / 4``."""
    z = x * x
    sin = x + x * (z * (SIN[0] + z * (SIN[1] + z * SIN[2])))
    cos = 1 + z * (COS[0] + z * (COS[1] + z * (COS[2] + z * COS[3])))
    return cos, sin
