from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...support.checks import listed, number
from ..frequencies import inverse_frequencies_float32
from .base import Axes, register_axes

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register_axes
@dataclass(frozen=True)
class Mixed(Axes):
    """Every pair has a direction and rotates by the position along it: ``angle = theta * (u . position)``.

    ``directions`` is ``[axes][pairs]`` and need not have unit length. For directions that are learned, keep the tensor
    ``[(heads,) axes, pairs]`` of frequencies in your model, start it from `mixed_frequencies` and rotate with
    ``Rotation.from_frequencies``, which passes gradients on.
    Source: RoPE-ViT (RoPE-Mixed), arXiv:2403.13298, section 3.3, eq. 10.

    >>> Mixed(((1.0, 0.0), (0.0, 1.0))).count
    2
    """

    directions: tuple[tuple[float, ...], ...]
    name = "mixed"

    def __post_init__(self) -> None:
        listed("directions", self.directions)
        for axis, row in enumerate(self.directions):
            listed(f"directions[{axis}]", row)
        object.__setattr__(self, "directions", tuple(tuple(row) for row in self.directions))
        if not self.directions or len({len(row) for row in self.directions}) != 1:
            widths = [len(row) for row in self.directions]
            raise ValueError(
                f"directions must be one row per axis, all of the same number of pairs, got rows of {widths}"
            )
        for axis, row in enumerate(self.directions):
            for pair, value in enumerate(row):
                number(f"directions[{axis}][{pair}]", value)

    @property
    def count(self) -> int:
        return len(self.directions)

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        """The axis with the largest share, for display."""
        shares = self.weights(pairs)
        return tuple(max(range(self.count), key=lambda a: abs(shares[a][p])) for p in range(pairs))

    def weights(self, pairs: int) -> tuple[tuple[float, ...], ...]:
        if len(self.directions[0]) != pairs:
            got = len(self.directions[0])
            raise ValueError(f"directions must have one column per pair, {pairs} here, got {got}")
        return self.directions


def mixed_frequencies(
    rotary_dim: int, heads: int, *, base: float = 10.0, generator: torch.Generator | None = None
) -> Tensor:
    """A start for learned 2-D frequencies: float32 ``[heads, 2, rotary_dim / 2]`` (x row, then y row).

    Magnitudes ``base ** (-4 j / rotary_dim)`` for ``j < rotary_dim / 4``, twice: once along a random direction drawn
    per head, once at a right angle to it. Source: RoPE-ViT's released code for eq. 10.

    >>> import torch
    >>> f = mixed_frequencies(8, heads=3)
    >>> f.shape, torch.allclose(f.norm(dim=1)[:, 0], torch.ones(3))
    (torch.Size([3, 2, 4]), True)
    """
    import torch

    if rotary_dim < 4 or rotary_dim % 4:
        raise ValueError(f"rotary_dim must be a positive multiple of 4 for two mixed axes, got {rotary_dim}")
    size = inverse_frequencies_float32(base, rotary_dim // 2)
    angle = 2 * math.pi * torch.rand(heads, 1, generator=generator, dtype=torch.float32)
    both = torch.cat((angle.expand(-1, len(size)), (angle + math.pi / 2).expand(-1, len(size))), dim=-1)
    return torch.stack((both.cos(), both.sin()), dim=1) * size.repeat(2)
