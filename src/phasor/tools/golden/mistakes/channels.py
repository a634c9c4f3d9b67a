"""Channels, pairs, heads and axes in the wrong places, or the wrong number of them."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ....rotary.axes import Axes, InterleavedSections, Listed, Mixed, OneAxis, Sections
from ....rotary.spec import RotarySpec
from ..case import Change, RotationCase, Row, by_formula, crossed, over_all_heads, with_fields, with_spec


def of_layout(spec: RotarySpec) -> Iterator[Row]:
    names = {True: "interleaved (2i, 2i + 1)", False: f"halves (i, i + {spec.pairs})"}
    there, here = names[not spec.interleaved], names[spec.interleaved]
    text = f"pairs are {there} there and must be {here}"
    yield "layout", text, with_spec(interleaved=not spec.interleaved, permuted=False, blocks=1)
    if spec.blocks > 1:
        text = f"pairs are halves of all {spec.rotary_dim} channels there, and must be halves inside each of"
        yield "layout", f"{text} {spec.blocks} blocks", with_spec(blocks=1)
    for ways in (("interleaved", "halves"), ("halves", "interleaved")):
        text = f"the values are right but the channels are permuted from {ways[0]} to {ways[1]}; scores are not touched"
        yield "permuted", text, with_fields(behind=_permuted(*ways))
    if spec.blocks == 1 and not spec.permuted and not spec.second:
        text = f"cos and sin lie as for {there} pairs there, and the rotation is that of {here} ones"
        yield "layout", text, with_fields(rotate=crossed)
    way = "forwards" if spec.reverse else "backwards"
    yield "direction", f"it rotates {way}: the sign of sin is reversed", with_spec(reverse=not spec.reverse)


def _permuted(before: str, after: str) -> Callable[[RotationCase, Tensor], Tensor]:
    def behind(case: RotationCase, y: Tensor) -> Tensor:
        halves = dataclasses.replace(case.spec.layout, interleaved=False, blocks=1, permuted=False)
        layouts = {"halves": halves, "interleaved": dataclasses.replace(halves, interleaved=True)}
        return y[..., layouts[before].permutation(layouts[after])]

    return behind


FORMULAS: tuple[tuple[str, str, Callable[..., tuple[Tensor, Tensor]]], ...] = (
    ("in_place", "the first of each pair is overwritten before the second is formed from it",
     lambda a, b, cos, sin: (u := a * cos - b * sin, b * cos + u * sin)),
    ("in_place", "the second of each pair is overwritten before the first is formed from it",
     lambda a, b, cos, sin: (a * cos - (v := b * cos + a * sin) * sin, v)),
    ("lost_minus", "the minus is lost: first * cos + second * sin, where the sine must be subtracted",
     lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin)),
    ("lost_minus", "a minus too many: second * cos - first * sin, where the sine must be added",
     lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin)),
)  # fmt: skip


def of_pairs(case: RotationCase) -> Iterator[Row]:
    if not case.spec.second:
        yield from ((cause, text, by_formula(pair)) for cause, text, pair in FORMULAS)
    yield "cos_sin", "cos and sin are exchanged", with_fields(wheel=lambda angles: (angles.sin(), angles.cos()))
    for name, unit in (("pi / 180", math.pi / 180), ("180 / pi", 180 / math.pi)):
        text = f"degrees are taken for radians: angles are multiplied by {name}"
        yield "degrees", text, with_fields(rounding={"angles": lambda angles, unit=unit: angles * unit})
    ladder = case.spec.inv_freq(case.seq_len)
    text = "the ladder of frequencies is reversed: the first pair is the slowest, and must be the fastest"
    yield "ladder_reversed", text, with_fields(frequencies=ladder.flip(0))
    if (shifted := _next_ones(case, ladder)) is not None:
        text = "the pairs are counted from 1: each rotates with the frequency of the next one, and the fastest is lost"
        yield "pair_index", text, with_fields(frequencies=shifted)


def _next_ones(case: RotationCase, own: Tensor) -> Tensor | None:
    """The frequency of the next pair for each pair; None where it does not follow from the base."""
    spec = case.spec
    if spec.frequencies is not None or spec.exponent_dim is not None or (spec.scaling and spec.axes.count > 1):
        return None
    steps = torch.tensor([spec.base ** (-1 / n) for _, n in spec.axes.rung_of_pair(spec.pairs)], dtype=torch.float64)
    return own * steps if spec.scaling is None else torch.cat((own[1:], own[-1:] * steps[-1:]))


def of_heads(spec: RotarySpec) -> Iterator[Row]:
    for places, side in ((1, "before"), (-1, "after")):
        text = f"the heads have moved by {places}: each holds what belongs to the one {side} it"
        yield "heads", text, with_fields(behind=lambda case, y, places=places: y.roll(places, 1))
    if isinstance(spec.axes, OneAxis) and spec.frequencies is None and spec.exponent_dim is None and not spec.learned:
        text = "one ladder of frequencies runs over all heads, and each head must have its own"
        yield "heads", text, _shared(one_head=False)
        if spec.blocks == 1 and not spec.permuted and spec.rotary_dim == spec.head_dim:
            text = "all heads are rotated as one wide head, and each must be rotated by itself"
            yield "heads", text, _shared(one_head=True)


def _shared(one_head: bool) -> Change:
    """One ladder over all heads, which no scaling has that holds a number for each pair."""

    def change(case: RotationCase) -> RotationCase:
        width = 2 * case.spec.rotary_dim
        case.spec.replace(head_dim=width, rotary_dim=width, trailing=False)  # ValueError where it has none
        return case.replace(rotate=over_all_heads(one_head))

    return change


def of_width(case: RotationCase) -> Iterator[Row]:
    spec, width, head = case.spec, case.spec.rotary_dim, case.spec.head_dim
    widths = () if spec.learned else dict.fromkeys((head // 4, head // 2, 3 * head // 4, width // 2, 2 * width, head))
    for other in widths:  # a trained log-scale has a number for each pair
        if width != other <= head:
            there, here = (f"all {other}", f"only {width}") if other == head else (other, width)
            text = f"{there} channels are rotated, and {here} must be"
            yield "rotary_dim", text, with_spec(rotary_dim=other, exponent_dim=None)
            yield "rotary_dim", text, with_spec(rotary_dim=other, exponent_dim=spec.exponent_dim or width)
    if width != head:
        text = f"the exponents are divided by head_dim = {head}, and must be by {spec.exponent_dim or width}"
        yield "rotary_dim", text, with_spec(exponent_dim=head)
        side, wrong = ("last", "first") if spec.trailing else ("first", "last")
        text = f"the {wrong} {width} channels are rotated, and must be the {side}"
        yield "trailing", text, with_spec(trailing=not spec.trailing)


def of_axes(spec: RotarySpec) -> Iterator[Row]:
    if spec.axes.count > 1 and not isinstance(spec.axes, Mixed):
        yield from (("axes", text, with_spec(axes=axes)) for text, axes in _other_axes(spec))


def _other_axes(spec: RotarySpec) -> Iterator[tuple[str, Axes]]:
    pairs, count = spec.pairs, spec.axes.count
    owner, rungs = spec.axes.axis_of_pair(pairs), spec.axes.rung_of_pair(pairs)
    sizes, few = tuple(owner.count(a) for a in range(count)), count <= 4
    for axis in range(count):
        yield f"all pairs follow axis {axis} of the positions", Listed((axis,) * pairs, rungs, axes=count)
    reverse = tuple(range(count))[::-1]
    yield "the axes of the positions are in reverse order", Listed(tuple(reverse[a] for a in owner), rungs, axes=count)
    for order in itertools.permutations(range(count)) if few else ():
        if order not in (reverse[::-1], reverse):
            there = ", ".join(map(str, order))
            text = f"axes of the positions are swapped: those of 0 to {count - 1} are {there} there"
            yield text, Listed(tuple(order[a] for a in owner), rungs, axes=count)
    if not isinstance(spec.axes, Sections) or isinstance(spec.axes, InterleavedSections):
        yield "the sections stand one after the other, and must take turns", Sections(sizes)
    if not isinstance(spec.axes, InterleavedSections) and sizes[0] == max(sizes):
        yield "the sections take turns there, and must stand one after the other", InterleavedSections(sizes)
    for other in dict.fromkeys(itertools.permutations(sizes) if few else ()):
        if other != sizes and isinstance(spec.axes, Sections):
            with contextlib.suppress(ValueError):
                axes = dataclasses.replace(spec.axes, sections=other)
                axes.axis_of_pair(pairs)
                yield f"the sections are {list(other)}, and must be {list(sizes)}", axes
    yield "the axes take turns pair by pair", Listed(tuple(p % count for p in range(pairs)), axes=count)
    if any(rung != (i, pairs) for i, rung in enumerate(rungs)):
        yield "one ladder of frequencies runs over all axes, and each must have its own", Listed(owner, axes=count)
