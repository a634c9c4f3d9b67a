"""Which position axis rotates which pair: one axis, or M-RoPE sections in the order of the family's code."""

from collections.abc import Callable

from ...rotary.axes import Alternating, Axes, InterleavedSections, Listed, OneAxis, Sections
from ...rotary.axes.axial import check_total
from .keys import Keys, Reading
from .refusal import unread

Pair = tuple[Axes, Axes | None]  # the second: those of the second member of each pair, where the code differs
AxesRule = Callable[[Reading, Keys, int], Pair]


def one_axis(reading: Reading, rope: Keys, pairs: int) -> Pair:
    """Positions are plain numbers."""
    _check_order(reading, rope, "one axis", striped=False, several=False)
    return OneAxis(), None


def sections(reading: Reading, rope: Keys, pairs: int, *, default: tuple[int, ...] = ()) -> Pair:
    """M-RoPE in contiguous sections (Qwen2-VL); without ``default`` the config must state them to have several."""
    sizes = _stated(reading, rope, default)
    _check_order(reading, rope, "contiguous sections", striped=False, several=bool(sizes))
    if where := rope.entries("mrope_section"):
        check_total(where[0][0], sizes, pairs)
    return (Sections(sizes) if sizes else OneAxis()), None


def striped(reading: Reading, rope: Keys, pairs: int, *, default: tuple[int, ...]) -> Pair:
    """Sections whose pairs alternate (Qwen3-VL)."""
    _check_order(reading, rope, "interleaved sections", striped=True, several=True)
    stated, where = _stated(reading, rope, default), rope.entries("mrope_section") or [("mrope_section", ())]
    if len(stated) != 3:
        raise ValueError(f"{where[0][0]} must have three sizes (time, height, width), got {list(stated)}")
    # what does not fit is cut, the rest is time
    owner = [j % 3 if j < 3 * stated[j % 3] else 0 for j in range(pairs)]
    sizes = tuple(owner.count(axis) for axis in range(3))
    if where[0][1] and sizes != stated:
        reading.note(
            f"mrope_section {list(stated)} does not fit {pairs} pairs that take turns: they are {list(sizes)}, as "
            "in transformers (llama.cpp leaves what is over to a fourth axis)"
        )
    return InterleavedSections(sizes), None


def paired(reading: Reading, rope: Keys, pairs: int, *, default: tuple[int, ...]) -> Pair:
    """Height and width alternate, then time; sections are (height, width, time) (ERNIE 4.5 VL)."""
    _check_order(reading, rope, "one order", striped=False, several=True)
    sizes = _stated(reading, rope, default)
    if len(sizes) != 3 or sizes[0] != sizes[1]:
        raise ValueError(
            f"mrope_section must be (height, width, time) with as many pairs for height as for width, got {sizes}"
        )
    return Listed((1, 2) * sizes[0] + (0,) * sizes[2]), None


def over_channels(reading: Reading, rope: Keys, pairs: int) -> Pair:
    """Each section, doubled, spans channels, not pairs: the members of a pair follow different axes (HunyuanVL)."""
    name, other = "mrope_section", "xdrope_section"
    _check_order(reading, rope, "sections over channels", striped=False, several=True)
    sizes = tuple(rope.wholes(name) or rope.wholes(other) or ())
    rope.explain(f"M-RoPE sections {list(sizes)}", name)
    rope.explain(f"the same as {name}", other)
    if not sizes:
        where = rope.path or f"{reading.path}rope_parameters."
        raise ValueError(f"{where}{name} is missing: the code of {reading.model_type} needs it; add it")
    if sum(sizes) != pairs:
        raise ValueError(f"{name} must add up to rotary_dim / 2 = {pairs} pairs, got {sizes} with sum {sum(sizes)}")
    axis = tuple(a for a, size in enumerate(sizes) for _ in range(2 * size))
    first, second = (Listed(half, axes=len(sizes)) for half in (axis[:pairs], axis[pairs:]))
    return first, second


def alternating(reading: Reading, rope: Keys, pairs: int) -> Pair:
    """Rows and columns alternate, pair by pair."""
    _check_order(reading, rope, "rows and columns", striped=False, several=False)
    return Alternating((0, 1)), None


def _stated(reading: Reading, rope: Keys, default: tuple[int, ...]) -> tuple[int, ...]:
    stated = rope.wholes("mrope_section")
    rope.explain(f"M-RoPE sections {stated}", "mrope_section")
    if stated is None and default:
        reading.keys.absent("mrope_section", f"the code of {reading.model_type} uses {list(default)}")
    return tuple(stated or default)


def _check_order(reading: Reading, rope: Keys, has: str, *, striped: bool, several: bool) -> None:
    """A stated order of the sections must be the code's."""
    order = ("mrope_interleaved", "interleaved")
    interleaved = rope.flag(*order)
    if interleaved is not None and interleaved != striped and (interleaved or several):
        raise unread(rope.entries(*order)[0][0], interleaved, f"the code of {reading.model_type} has {has} only")
    text = "sections alternate" if interleaved else "contiguous sections" if several else "no effect: one axis"
    rope.explain(text, *order)
