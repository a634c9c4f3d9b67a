"""Channels, heads and axes in the wrong places, or the wrong number of them."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator

import torch

from ....rotary.axes import Axes, InterleavedSections, Listed, Mixed, OneAxis, Sections
from ....rotary.spec import RotarySpec
from ..case import Mistake, RotationCase, with_fields, with_spec


def of_layout(spec: RotarySpec) -> Iterator[Mistake]:
    names = {True: "interleaved (2i, 2i + 1)", False: f"halves (i, i + {spec.pairs})"}
    there, here = names[not spec.interleaved], names[spec.interleaved]
    text = f"pairs are {there} there and must be {here}"
    yield Mistake("layout", text, with_spec(interleaved=not spec.interleaved, permuted=False, blocks=1))
    if spec.blocks > 1:
        text = f"pairs are halves of all {spec.rotary_dim} channels there, and must be halves inside each of"
        yield Mistake("layout", f"{text} {spec.blocks} blocks", with_spec(blocks=1))
    for moved in ("to halves", "to interleaved"):
        text = (
            f"the values are right but the channels are permuted from {_other(moved)} {moved}; scores are not touched"
        )
        yield Mistake("permuted", text, with_fields(moved=moved))
    if spec.blocks == 1 and not spec.permuted and not spec.second:
        text = f"cos and sin lie as for {there} pairs there, and the rotation is that of {here} ones"
        yield Mistake("layout", text, with_fields(crossed=True))
    way = "forwards" if spec.reverse else "backwards"
    yield Mistake("direction", f"it rotates {way}: the sign of sin is reversed", with_spec(reverse=not spec.reverse))


def _other(moved: str) -> str:
    return "interleaved" if moved == "to halves" else "halves"


def of_heads(spec: RotarySpec) -> Iterator[Mistake]:
    for places in (1, -1):
        side = "before" if places > 0 else "after"
        text = f"the heads have moved by {places}: each holds what belongs to the one {side} it"
        yield Mistake("heads", text, with_fields(rolled=places))
    if isinstance(spec.axes, OneAxis) and spec.frequencies is None and spec.exponent_dim is None and not spec.learned:
        text = "one ladder of frequencies runs over all heads, and each head must have its own"
        yield Mistake("heads", text, _shared("split"))
        if spec.blocks == 1 and not spec.permuted and spec.rotary_dim == spec.head_dim:
            text = "all heads are rotated as one wide head, and each must be rotated by itself"
            yield Mistake("heads", text, _shared("wide"))


def _shared(how: str) -> Callable[[RotationCase], RotationCase]:
    """One ladder over all heads, which no scaling has that holds a number for each pair."""

    def change(case: RotationCase) -> RotationCase:
        width = 2 * case.spec.rotary_dim
        case.spec.replace(head_dim=width, rotary_dim=width, trailing=False)  # ValueError where it has none
        return case.replace(shared=how)

    return change


def of_width(case: RotationCase) -> Iterator[Mistake]:
    spec, width = case.spec, case.spec.rotary_dim
    yield from _from_one(case)
    widths = (spec.head_dim // 4, spec.head_dim // 2, 3 * spec.head_dim // 4, width // 2, 2 * width)
    for other in () if spec.learned else dict.fromkeys(widths):  # a trained log-scale has a number for each pair
        if other != width and other < spec.head_dim:
            text = f"{other} channels are rotated, and {width} must be"
            yield Mistake("rotary_dim", text, with_spec(rotary_dim=other, exponent_dim=None))
            change = with_spec(rotary_dim=other, exponent_dim=spec.exponent_dim or width)
            yield Mistake("rotary_dim", text, change)
    if width == spec.head_dim:
        return
    if not spec.learned:
        text = f"all {spec.head_dim} channels are rotated, and only {width} must be"
        yield Mistake("rotary_dim", text, with_spec(rotary_dim=spec.head_dim, exponent_dim=None))
    text = f"the exponents are divided by head_dim = {spec.head_dim}, and must be by {spec.exponent_dim or width}"
    yield Mistake("rotary_dim", text, with_spec(exponent_dim=spec.head_dim))
    side, wrong = ("last", "first") if spec.trailing else ("first", "last")
    text = f"the {wrong} {width} channels are rotated, and must be the {side}"
    yield Mistake("trailing", text, with_spec(trailing=not spec.trailing))


def _from_one(case: RotationCase) -> Iterator[Mistake]:
    """Pairs counted from 1: every pair has the frequency of the next one."""
    spec = case.spec
    if spec.frequencies is not None or spec.exponent_dim is not None:
        return
    own = spec.inv_freq(case.seq_len)
    steps = torch.tensor([spec.base ** (-1 / n) for _, n in spec.axes.rung_of_pair(spec.pairs)], dtype=torch.float64)
    if spec.scaling is None:
        shifted = own * steps
    elif spec.axes.count == 1:
        shifted = torch.cat((own[1:], own[-1:] * steps[-1:]))
    else:
        return
    text = "the pairs are counted from 1: each rotates with the frequency of the next one, and the fastest is lost"
    yield Mistake("pair_index", text, with_fields(frequencies=shifted))


def of_axes(spec: RotarySpec) -> Iterator[Mistake]:
    count = spec.axes.count
    if count == 1 or isinstance(spec.axes, Mixed):
        return
    owner, rungs = spec.axes.axis_of_pair(spec.pairs), spec.axes.rung_of_pair(spec.pairs)
    for axis in range(count):
        text = f"all pairs follow axis {axis} of the positions"
        yield Mistake("axes", text, with_spec(axes=Listed((axis,) * spec.pairs, rungs, axes=count)))
    swapped = Listed(tuple(count - 1 - a for a in owner), rungs, axes=count)
    yield Mistake("axes", "the axes of the positions are in reverse order", with_spec(axes=swapped))
    for order in itertools.permutations(range(count)) if count <= 4 else ():
        if order not in (tuple(range(count)), tuple(range(count))[::-1]):
            text = (
                f"axes of the positions are swapped: those of 0 to {count - 1} are {', '.join(map(str, order))} there"
            )
            reordered = Listed(tuple(order[a] for a in owner), rungs, axes=count)
            yield Mistake("axes", text, with_spec(axes=reordered))
    for text, axes in _other_axes(spec, owner):
        yield Mistake("axes", text, with_spec(axes=axes))


def _other_axes(spec: RotarySpec, owner: tuple[int, ...]) -> Iterator[tuple[str, Axes]]:
    pairs, count = spec.pairs, spec.axes.count
    sizes = tuple(owner.count(a) for a in range(count))
    if not isinstance(spec.axes, Sections) or isinstance(spec.axes, InterleavedSections):
        yield "the sections stand one after the other, and must take turns", Sections(sizes)
    if not isinstance(spec.axes, InterleavedSections) and sizes[0] == max(sizes):
        yield "the sections take turns there, and must stand one after the other", InterleavedSections(sizes)
    for other in dict.fromkeys(itertools.permutations(sizes) if count <= 4 else ()):
        if other != sizes and isinstance(spec.axes, Sections):
            with contextlib.suppress(ValueError):
                axes = dataclasses.replace(spec.axes, sections=other)
                axes.axis_of_pair(pairs)
                yield f"the sections are {list(other)}, and must be {list(sizes)}", axes
    turns = tuple(p % count for p in range(pairs))
    yield "the axes take turns pair by pair", Listed(turns, axes=count)
    if any(rung != (i, pairs) for i, rung in enumerate(spec.axes.rung_of_pair(pairs))):
        yield "one ladder of frequencies runs over all axes, and each must have its own", Listed(owner, axes=count)
