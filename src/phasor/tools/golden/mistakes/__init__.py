"""The known mistakes of rotary code, each as a change to the right way of rotating, the simplest first."""

from collections.abc import Iterator

from torch import Tensor

from ..case import Mistake, RotationCase, with_fields
from .channels import of_axes, of_heads, of_layout, of_width
from .factors import of_magnitude, of_precision, of_scaling
from .kinds import of_kinds
from .moves import of_moves
from .numbers import fits
from .pairs import of_pairs
from .positions import of_positions
from .ramps import of_ramps

__all__ = ["fits", "mistakes", "of_kinds"]


def mistakes(case: RotationCase, softmax_factor: float, temperature: Tensor | None) -> Iterator[Mistake]:
    """Every known mistake that would show in this case, but for those whose number has to be read off first: `fits`."""
    yield Mistake("not_rotated", "nothing was rotated: the result is the input", with_fields(rotated=False))
    yield from of_moves(case)
    yield from of_positions(case)
    yield from of_layout(case.spec)
    yield from of_pairs(case)
    yield from of_magnitude(case, softmax_factor, temperature)
    yield from of_scaling(case)
    yield from of_ramps(case)
    yield from of_width(case)
    yield from of_axes(case.spec)
    yield from of_heads(case.spec)
    yield from of_precision()
