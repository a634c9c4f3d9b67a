from dataclasses import dataclass

from ...support.checks import listed, whole
from .axial import check_total
from .base import Axes, register_axes


@register_axes
@dataclass(frozen=True)
class Sections(Axes):
    """M-RoPE: one ladder for all pairs; the first ``sections[0]`` pairs follow time, the next height, then width.

    Text tokens carry the same number on all axes, which makes it plain rotary for text.
    Source: Qwen2-VL, arXiv:2409.12191, section 2.1 (``mrope_section``).

    >>> Sections((1, 2, 1)).axis_of_pair(4)
    (0, 1, 1, 2)
    """

    sections: tuple[int, ...]
    name = "sections"

    def __post_init__(self) -> None:
        listed("sections", self.sections)
        object.__setattr__(self, "sections", tuple(self.sections))
        if not self.sections:
            raise ValueError("sections must name at least one axis, got ()")
        for axis, size in enumerate(self.sections):
            whole(f"sections[{axis}]", size, at_least=0)

    @property
    def count(self) -> int:
        return len(self.sections)

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        check_total("sections", self.sections, pairs)
        return tuple(axis for axis, size in enumerate(self.sections) for _ in range(size))


@register_axes
@dataclass(frozen=True)
class InterleavedSections(Sections):
    """Interleaved M-RoPE: pairs take turns ``t h w t h w …``, so that every axis gets fast and slow pairs.

    Pair ``j`` follows axis ``a = j mod count`` as long as ``j < count * sections[a]``, else axis 0.
    Source: Qwen3-VL's ``apply_interleaved_mrope`` (``mrope_interleaved``).

    >>> InterleavedSections((3, 1, 1)).axis_of_pair(5)
    (0, 1, 2, 0, 0)
    """

    name = "interleaved_sections"

    def axis_of_pair(self, pairs: int) -> tuple[int, ...]:
        check_total("sections", self.sections, pairs)
        n = self.count
        owner = tuple(j % n if j < n * self.sections[j % n] else 0 for j in range(pairs))
        for axis, size in enumerate(self.sections):
            if owner.count(axis) != size:
                raise ValueError(
                    f"sections cannot take turns as {self.sections}: axis {axis} gets {owner.count(axis)} pairs; "
                    "give axis 0 the most pairs, or name the axis of every pair with Listed (what is left over goes to "
                    "axis 0 in transformers, to a fourth axis in llama.cpp's IMROPE)"
                )
        return owner
