"""The known mistakes of rotary code, a row each: cause, sentence, and the change of a rotation; simple ones first."""

from collections.abc import Iterator

from torch import Tensor

from ..case import Mistake, RotationCase, with_fields
from .channels import of_axes, of_heads, of_layout, of_pairs, of_width
from .magnitude import of_magnitude, of_precision
from .moves import of_moves
from .numbers import fits
from .positions import of_positions
from .scalings import of_kinds, of_scaling

__all__ = ["fits", "mistakes", "of_kinds"]


def mistakes(case: RotationCase, softmax_factor: float, temperature: Tensor | None) -> Iterator[Mistake]:
    """Every known mistake that would show in this case, but for those whose number has to be read off first: `fits`."""
    for rows in (
        [("not_rotated", "nothing was rotated: the result is the input", with_fields(rotate=lambda case, x: x))],
        of_moves(case),
        of_positions(case),
        of_layout(case.spec),
        of_pairs(case),
        of_magnitude(case, softmax_factor, temperature),
        of_scaling(case),
        of_width(case),
        of_axes(case.spec),
        of_heads(case.spec),
        of_precision(),
    ):
        yield from (Mistake(*row) for row in rows)
