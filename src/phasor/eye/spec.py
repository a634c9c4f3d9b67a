"""The spec of what was seen at one attention: layout, frequencies with their names, factor, direction."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor

from ..rotary.axes import Axes, Listed
from ..rotary.rotation import Rotation
from ..rotary.spec import Angles, RotarySpec
from ..rotary.tables import Phases
from .axes import schemes
from .frequencies import Frequencies
from .layout import Placed
from .names import Named, named
from .operator import TWO_ANGLES, Operator
from .sites import Side

EVEN = 2e-6  # relative: roundings of float32 tables
EVEN_SINGLE = 2e-5  # of pairs and tokens among each other
HALVES = torch.bfloat16, torch.float16
EVEN_HALF = 1e-2  # of bfloat16 tables


class NoSpec(Exception):
    """Why what was seen is no `RotarySpec`."""


@dataclass(frozen=True)
class Sighting:
    """``spec``: with the model's own arithmetic, as far as seen; ``named``: how its numbers were found.

    ``bits``: whether its cos and sin are those that the model multiplied with, to the bit. ``factor``: what a plain
    number in the code multiplies beside. ``before``, ``after``: tokens at the ends that pass. ``heads``: how many of
    the first heads turn, None for all.
    """

    spec: RotarySpec
    named: Named
    bits: bool
    factor: float = 1.0
    before: int = 0
    after: int = 0
    heads: int | None = None


@dataclass(frozen=True)
class Measured:
    """What one side was seen to do, pair by pair in the order of its layout: numbers without names."""

    values: tuple[float, ...]
    axis: tuple[int, ...]
    factor: float
    reverse: bool
    heads: int | None
    seen: Operator
    found: Frequencies
    place: Placed


def measured(side: Side) -> Measured:
    """Raises `NoSpec` where what was seen is no rotation that a spec can say."""
    seen, found, place = _parts(side)
    values, axis, heads = _in_order(found, place)
    reverse = bool((values <= 0).all())
    values = values.abs() if reverse else values
    if (values < 0).any():
        raise NoSpec(
            "some of its pairs turn forwards and others backwards, or by half a turn or more between two tokens"
        )
    return Measured(tuple(values.tolist()), axis, _factor(seen), reverse, heads, seen, found, place)


def sighting(one: Measured, numbers: Mapping[str, Any], by_length: Mapping[int, Any]) -> Sighting:
    """The simplest spec that gives what was measured, at all lengths at which it was."""
    best = _best(one, numbers, by_length)
    if "frequencies" in best.fields and not by_length and (other := _by_first_pairs(one)) is not None:
        named_so = _best(other, numbers, {})
        one, best = (one, best) if "frequencies" in named_so.fields else (other, named_so)
    if abs(best.factor - 1) > EVEN:
        raise NoSpec(f"cos and sin carry a factor of {best.factor:.9g}, which no scaling known here explains")
    spec, bits = _bits(_spec(one, best), one)
    return Sighting(spec, best, bits, one.seen.factor, one.found.before, one.found.after, one.heads)


def _best(one: Measured, numbers: Mapping[str, Any], by_length: Mapping[int, Any]) -> Named:
    """By the first scheme of axes with which the frequencies have a name, else by the simplest."""
    best: Named | None = None
    exact = one.found.exact and all(v == float(torch.tensor(v, dtype=torch.float32)) for v in one.values)
    for axes in schemes(one.axis, one.values, len(one.found.coordinates)):
        answer = named(one.values, factor=one.factor, numbers=numbers, exact=exact, by_length=by_length, axes=axes)
        if best is None or ("frequencies" in best.fields and "frequencies" not in answer.fields):
            best = answer
        if "frequencies" not in answer.fields:
            break
    assert best is not None
    return best


def _by_first_pairs(one: Measured) -> Measured | None:
    """The same on a stretched grid, counted so that the fastest pair of each axis turns by 1 radian per unit.

    Positions are divided in float32, as code does that divides them by a number of its config (Allegro).
    """
    axes = range(len(one.found.coordinates))
    fastest = [max(v for v, axis in zip(one.values, one.axis, strict=True) if axis == a) for a in axes]
    if len(axes) == 1 or not all(fastest):
        return None
    divisors = [short if abs((short := float(f"{1 / f:.2e}")) * f - 1) < EVEN else 1 / f for f in fastest]
    values = tuple(v * divisors[a] for v, a in zip(one.values, one.axis, strict=True))
    at = tuple((c.float() / d).double() for c, d in zip(one.found.coordinates, divisors, strict=True))
    return None if set(divisors) == {1.0} else replace(one, values=values, found=replace(one.found, coordinates=at))


def _parts(side: Side) -> tuple[Operator, Frequencies, Placed]:
    seen, found, place = side.operator, side.frequencies, side.placed
    if seen is None or not side.turns:
        raise NoSpec(side.seen.missing or "nothing turns")
    if isinstance(found, str):
        raise NoSpec(found)
    if place is None:
        raise NoSpec(f"its pairs {seen.pairs[:3]}… lie in no layout that is known here")
    return seen, found, place


def _in_order(found: Frequencies, place: Placed) -> tuple[Tensor, tuple[int, ...], int | None]:
    """Frequency and axis of every pair of the layout, and how many of the first heads turn (None: all, and alike).

    Where second members turn otherwise, theirs follow.
    """
    turning = found.values.abs().amax(1) > 0
    heads = int(turning.sum())
    if not turning[:heads].all() or not bool((found.values[:heads] == found.values[:1]).all()):
        raise NoSpec("each of its heads turns by frequencies of its own")
    pairs, members = place.layout.pairs, len(found.axis_of_pair) // len(place.pair_of)
    values = torch.zeros(members * pairs, dtype=torch.float64)
    axis = [found.axis_of_pair[0]] * len(values)
    for pair, at in enumerate(member * pairs + at for member in range(members) for at in place.pair_of):
        values[at], axis[at] = found.values[0, pair], found.axis_of_pair[pair]
    return values, tuple(axis), None if heads == len(turning) else heads


def _factor(seen: Operator) -> float:
    """The factor inside cos and sin: one for all pairs and tokens, beside what multiplies the channels that pass."""
    around = torch.tensor(seen.factor, dtype=torch.float64)
    passed = seen.passed.abs().mean(1, keepdim=True) if seen.passing else around
    if seen.passing and bool(((seen.passed.abs() - passed).abs() <= EVEN * passed).all()):
        around = passed * math.copysign(1.0, seen.factor)  # of each head and token: a temperature
    scale = seen.scale / around
    scale = scale[..., scale.amax((0, 1)) > 0]  # without padding
    middle = float(scale.median())
    even = EVEN_HALF if in_half(seen) else EVEN_SINGLE
    if float((scale - middle).abs().max()) > even * middle:
        raise NoSpec("its pairs, or its tokens, have factors of their own")
    return float(torch.tensor(1.0 if abs(middle - 1) < EVEN else middle, dtype=torch.float32))


def in_half(seen: Operator) -> bool:
    """Whether cos and sin were rounded to bfloat16 or float16 on their way."""
    tables = torch.stack((seen.cos, seen.sin)) / seen.factor
    return any(bool(((tables - tables.to(kind).double()).abs() <= 1e-9).all()) for kind in HALVES)


def _spec(one: Measured, answer: Named) -> RotarySpec:
    layout = one.place.layout
    fields: dict[str, Any] = {
        "head_dim": layout.head_dim, "rotary_dim": 2 * min(answer.pairs, layout.pairs), "trailing": layout.trailing,
        "interleaved": layout.interleaved, "permuted": layout.permuted, "blocks": layout.blocks,
        "reverse": one.reverse,
    }  # fmt: skip
    if any(bool((c != c.round()).any()) for c in one.found.coordinates):
        fields["coordinates"] = "real"
    if one.seen.second is not None:
        fields |= _of_members(answer, layout.pairs)
    return answer.spec(**fields)


def _of_members(answer: Named, pairs: int) -> dict[str, Axes]:
    """The axes of first and of second members; raises `NoSpec` where no ladder along several axes says both."""
    axes = answer.fields.get("axes")
    if not isinstance(axes, Listed) or axes.rung is None or "frequencies" in answer.fields:
        raise NoSpec(TWO_ANGLES)
    first, second = (Listed(axes.axis[m], axes.rung[m], axes=axes.count) for m in (slice(pairs), slice(pairs, None)))
    return {"axes": first, "second": second}


def _bits(spec: RotarySpec, one: Measured) -> tuple[RotarySpec, bool]:
    """The spec with the angles whose cos and sin are the model's to the bit, and whether there are such."""
    seen, found = one.seen, one.found
    stop = seen.cos.shape[-1] - found.after
    theirs = [t[0, :, found.before : stop].T / seen.factor for t in (seen.cos, seen.sin, *(seen.second or ()))]
    at = torch.stack(found.coordinates)
    at = at.float() if spec.coordinates == "real" else at.long()
    pairs = list(one.place.pair_of)
    recipes = dict.fromkeys((spec.angles, *get_args(Angles)[1:]))
    trials = [spec.replace(angles=a) for a in recipes if a != "float32_exp" or spec.scaling is None]
    for form, trial in product((_tables, _by_polar), trials):
        length = int(at.max()) + 1 if trial.length_dependent else None
        mine = [t.double()[:, pairs] for t in form(trial, at if len(at) > 1 else at[0], length)]
        if all(torch.equal(a, b.float().double()) for a, b in zip(mine, theirs, strict=True)):
            return trial, form is _tables
    return (spec if found.exact else spec.replace(angles="float32")), False


def _tables(spec: RotarySpec, at: Tensor, length: int | None) -> list[Tensor]:
    rotation = Rotation.at(spec, at, length)
    return [rotation.cos, rotation.sin, *(rotation.second or ())]


def _by_polar(spec: RotarySpec, at: Tensor, length: int | None) -> list[Tensor]:
    """By `torch.polar`, which rounds some cosines and sines otherwise in the last bit: what shows is the angles."""
    phases = Phases(spec, at, length)
    angles = [phases.angles(second=second) for second in ((False, True) if spec.second is not None else (False,))]
    tables = [torch.polar(torch.ones_like(a), -a if spec.reverse else a).to(torch.complex64) for a in angles]
    return [part * spec.attention_factor(length) for table in tables for part in (table.real, table.imag)]
