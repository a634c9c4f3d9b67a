"""Which position axis turns which pair: one axis, or M-RoPE sections in the order of the family's code."""

from ..axes import Alternating, Axes, Axial, InterleavedSections, Listed, OneAxis, Sections
from .fields import Reader
from .keys import Keys


def read_axes(reader: Reader, rope: Keys, pairs: int) -> tuple[Axes, Axes | None]:
    """The axes, and those of the second member of each pair where the code turns the two differently."""
    family = reader.family
    default = family.striped or family.sections or family.paired
    sections = rope.wholes("mrope_section")
    if family.doubled:
        rope.became("the same as mrope_section", "xdrope_section")
        sections = rope.wholes("mrope_section") or rope.wholes("xdrope_section")
    several = default is not None or family.doubled
    _check_order(reader, rope, several and (sections is not None or default is not None))
    if family.alternating:
        return Alternating((0, 1)), None
    if family.blocks > 1:
        return Axial((pairs // family.blocks,) * family.blocks), None
    if sections is None and default is None:
        if family.doubled:
            where = rope.places[0][0] if rope.places else f"{reader.path}rope_parameters."
            raise ValueError(f"{where}mrope_section is missing: the code of {reader.model_type} needs it; add it")
        return OneAxis(), None
    if not several and reader.model_type != "llama":  # drafts for Qwen2-VL call themselves llama
        raise ValueError(
            f"{rope.found('mrope_section')[0][0]} is given, but {reader.model_type} has positions with one axis; "
            "describe the encoding with RotarySpec yourself"
        )
    rope.became(f"M-RoPE sections {sections}", "mrope_section", "xdrope_section")
    if sections is None:
        text = f"not in config: the code of {reader.model_type} uses {list(default or ())}"
        reader.sources[f"{reader.path}mrope_section"] = text
    sizes = tuple(sections or default or ())
    if family.paired:
        return _paired(sizes), None
    if family.doubled:
        return _doubled(sizes, pairs)
    if family.striped:
        return InterleavedSections(sizes if sections else _taken(sizes, pairs)), None
    return Sections(sizes), None


def _check_order(reader: Reader, rope: Keys, several: bool) -> None:
    family = reader.family
    order = rope.found("mrope_interleaved", "interleaved")
    striped = rope.flag("mrope_interleaved", "interleaved")
    if striped is not None and (striped != bool(family.striped) or not several):
        has = "interleaved sections" if family.striped else "contiguous sections" if family.sections else "one axis"
        raise ValueError(
            f"{order[0][0]} is {striped}, but the code of {reader.model_type} has {has} only; remove the key"
        )
    rope.became("sections take turns" if striped else "contiguous sections", "mrope_interleaved", "interleaved")


def _taken(sections: tuple[int, ...], pairs: int) -> tuple[int, ...]:
    """The sections that a default of the code leaves of this many pairs: what does not fit is cut, the rest is time."""
    owner = [j % 3 if j < 3 * sections[j % 3] else 0 for j in range(pairs)]
    return tuple(owner.count(axis) for axis in range(3))


def _paired(sections: tuple[int, ...]) -> Listed:
    """ERNIE 4.5 VL: height and width take turns, then time; sections are (height, width, time)."""
    if len(sections) != 3 or sections[0] != sections[1]:
        raise ValueError(
            f"mrope_section must be (height, width, time) with as many pairs for height as for width, got {sections}"
        )
    return Listed((1, 2) * sections[0] + (0,) * sections[2])


def _doubled(sections: tuple[int, ...], pairs: int) -> tuple[Axes, Axes]:
    """HunyuanVL: each section, doubled, spans channels, not pairs: the members of a pair follow different axes."""
    if sum(sections) != pairs:
        raise ValueError(
            f"mrope_section must add up to rotary_dim / 2 = {pairs} pairs, got {sections} with sum {sum(sections)}"
        )
    axis = tuple(a for a, size in enumerate(sections) for _ in range(2 * size))
    first, second = (Listed(half, axes=len(sections)) for half in (axis[:pairs], axis[pairs:]))
    return first, second
