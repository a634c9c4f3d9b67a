"""The wrong number of channels, rungs or axes."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator

import torch

from .....rotary.axes import Axes, InterleavedSections, Listed, Mixed, Sections
from .....rotary.spec import RotarySpec
from ..case import Case
from .mistake import Mistake, with_fields, with_spec


def of_width(case: Case) -> Iterator[Mistake]:
    spec, width = case.spec, case.spec.rotary_dim
    yield from _from_one(case)
    for other in dict.fromkeys((spec.head_dim // 4, spec.head_dim // 2, 3 * spec.head_dim // 4, width // 2, 2 * width)):
        if other != width and other < spec.head_dim:
            says = f"{other} channels are turned, and {width} must be"
            yield Mistake("rotary_dim", says, with_spec(rotary_dim=other, exponent_dim=None), alone=True)
            change = with_spec(rotary_dim=other, exponent_dim=spec.exponent_dim or width)
            yield Mistake("rotary_dim", says, change, alone=True)
    if width == spec.head_dim:
        return
    says = f"all {spec.head_dim} channels are turned, and only {width} must be"
    yield Mistake("rotary_dim", says, with_spec(rotary_dim=spec.head_dim, exponent_dim=None))
    says = f"the exponents are divided by head_dim = {spec.head_dim}, and must be by {spec.exponent_dim or width}"
    yield Mistake("rotary_dim", says, with_spec(exponent_dim=spec.head_dim))
    side, wrong = ("last", "first") if spec.trailing else ("first", "last")
    says = f"the {wrong} {width} channels are turned, and must be the {side}"
    yield Mistake("trailing", says, with_spec(trailing=not spec.trailing))


def _from_one(case: Case) -> Iterator[Mistake]:
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
    says = "the pairs are counted from 1: each turns with the frequency of the next one, and the fastest is lost"
    yield Mistake("pair_index", says, with_fields(frequencies=shifted), alone=True)


def of_axes(spec: RotarySpec) -> Iterator[Mistake]:
    count = spec.axes.count
    if count == 1 or isinstance(spec.axes, Mixed):
        return
    owner, rungs = spec.axes.axis_of_pair(spec.pairs), spec.axes.rung_of_pair(spec.pairs)
    for axis in range(count):
        says = f"all pairs follow axis {axis} of the positions"
        yield Mistake("axes", says, with_spec(axes=Listed((axis,) * spec.pairs, rungs, axes=count)))
    swapped = Listed(tuple(count - 1 - a for a in owner), rungs, axes=count)
    yield Mistake("axes", "the axes of the positions are in reverse order", with_spec(axes=swapped))
    for order in itertools.permutations(range(count)) if count <= 4 else ():
        if order not in (tuple(range(count)), tuple(range(count))[::-1]):
            says = (
                f"axes of the positions are swapped: those of 0 to {count - 1} are {', '.join(map(str, order))} there"
            )
            reordered = Listed(tuple(order[a] for a in owner), rungs, axes=count)
            yield Mistake("axes", says, with_spec(axes=reordered), alone=True)
    for says, axes in _other_axes(spec, owner):
        yield Mistake("axes", says, with_spec(axes=axes))


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
