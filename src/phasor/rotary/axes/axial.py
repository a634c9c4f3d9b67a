from dataclasses import dataclass

from ...support.checks import listed, whole
from .base import Axes, register_axes


@register_axes
@dataclass(frozen=True)
class Axial(Axes):
    """2-D and 3-D axial rotary: each axis owns a block of pairs with a full ladder of its own.

    ``sizes`` are the pairs per axis, in channel order. Pair ``j`` of an axis with ``n`` pairs rotates by
    ``position[axis] * base ** (-j / n)``; for two equal axes that is ``base ** (-4 j / rotary_dim)``.
    Source: Su 2021, kexue.fm 8397; RoPE-ViT, arXiv:2403.13298, section 3.2, eq. 8; Qwen2-VL's vision tower.

    >>> Axial((2, 2)).axis_of_pair(4), Axial((2, 2)).rung_of_pair(4)
    ((0, 0, 1, 1), ((0, 2), (1, 2), (0, 2), (1, 2)))
    """

    sizes: tuple[int, ...]
    name = "axial"

    def __post_init__(self) -> None:
        listed("sizes", self.sizes)
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if len(self.sizes) < 2:
            raise ValueError(f"sizes must name at least two axes, got {self.sizes}; for one axis use OneAxis()")
        for axis, size in enumerate(self.sizes):
            whole(f"sizes[{axis}]", size)

    @property
    def count(self) -> int:
        return len(self.sizes)

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        check_total("sizes", self.sizes, pairs)
        return tuple(axis for axis, size in enumerate(self.sizes) for _ in range(size))

    def rung_of_pair(self, pairs: int) -> tuple[tuple[int, int], ...]:
        check_total("sizes", self.sizes, pairs)
        return tuple((j, size) for size in self.sizes for j in range(size))


def check_total(name: str, sizes: tuple[int, ...], pairs: int) -> None:
    """Raise ``ValueError`` unless the sizes add up to the number of pairs."""
    if sum(sizes) != pairs:
        raise ValueError(f"{name} must add up to rotary_dim / 2 = {pairs} pairs, got {sizes} with sum {sum(sizes)}")
