"""The known mistakes of rotary code, each as a change to the right way of rotating, the simplest first."""

from collections.abc import Iterator

from torch import Tensor

from ..case import Case
from .layout import of_heads, of_layout
from .magnitude import of_magnitude
from .mistake import Mistake, with_fields
from .numbers import fits
from .positions import of_positions
from .precision import of_precision
from .scaling import of_scaling
from .width import of_axes, of_width

__all__ = ["Mistake", "fits", "mistakes"]


def mistakes(case: Case, softmax_factor: float, temperature: Tensor | None) -> Iterator[Mistake]:
    """Every known mistake that would show in this case, but for those whose number has to be read off first: `fits`."""
    yield Mistake("not_rotated", "nothing was rotated: the result is the input", with_fields(turned=False))
    yield from of_positions(case)
    yield from of_layout(case.spec)
    yield from of_magnitude(case, softmax_factor, temperature)
    yield from of_scaling(case)
    yield from of_width(case)
    yield from of_axes(case.spec)
    yield from of_heads(case.spec)
    yield from of_precision()
