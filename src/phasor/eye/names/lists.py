"""Candidates that divide every pair by a number of its own: LongRoPE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...rotary.scaling import LongRoPE
from .config_numbers import Numbers
from .sight import Sight
from .solved import SOLVED, bases_of, built, fall, is_one, is_positive, with_scaling


def searched(sight: Sight, config: Numbers, ladder: list[float], literal: bool) -> Iterator[dict[str, Any]]:
    """LongRoPE: a list of the config divides the ladder."""
    for short in dict.fromkeys(values for values in config.lists if len(values) > sight.steps[-1]):
        undone = [f * short[i] for i, f in zip(sight.steps, ladder, strict=True)]
        if not all(f > 0 for f in undone) or len(undone) < 2 or not is_one(undone[0]):
            continue
        for base, dim in bases_of(sight, config, fall(sight, undone)):
            if (dim or 2 * sight.rungs) + 1 >> 1 == len(short):
                for scaling in longrope(sight, config, base, short, literal):
                    yield from with_scaling([(base, dim)], scaling)


def longrope(
    sight: Sight, config: Numbers, base: float, short: tuple[float, ...] | None = None, literal: bool = False
) -> Iterator[LongRoPE]:
    """LongRoPE with the lists that places state; ``short`` is the one that was seen, where it was."""
    for p in config.parameters("short", "long", "original", "length", "factor", *_LONG_MAGNITUDES):
        inner, outer = tuple(p.get("short", ())), tuple(p.get("long", ()))
        for long in [outer] if inner and (short is None or inner == short) else _long_lists(sight, config, short):
            for start in _starts(p, sight, config):
                implicit = p["length"] / start if is_positive(p.get("length")) else None
                for factor in filter(is_positive, (p.get("factor"), implicit, 1.0)):
                    for scaling in built(LongRoPE, inner if short is None else short, long, start, factor):
                        yield from _with_magnitudes(scaling, p, sight, literal)


def _long_lists(sight: Sight, config: Numbers, short: tuple[float, ...] | None) -> list[tuple[float, ...]]:
    """The lists of the config, whatever their keys are called, by which the ladder is divided where it changed."""
    if short is None or not sight.changed:
        return []
    inside, beyond = sight.ladder(), sight.ladder(sight.changed[-1])
    ratios = [a * short[i] / b for i, a, b in zip(sight.steps, inside, beyond, strict=True)]

    def divides(values: tuple[float, ...]) -> bool:
        pairs = zip(sight.steps, ratios, strict=True)
        return len(values) == len(short) and all(math.isclose(values[i], r, rel_tol=SOLVED) for i, r in pairs)

    return [values for values in config.lists if divides(values)]


def _starts(p: Mapping[str, Any], sight: Sight, config: Numbers) -> list[int]:
    """Lengths up to which nothing may have changed: stated as such, else between two that were seen."""
    stated = [int(n) for n in (p.get("original", p.get("length")),) if is_positive(n)]
    between = config.whole if sight.changed else ()
    starts = dict.fromkeys((*stated, *between))
    return [n for n in starts if n >= 2 and all(n < changed for changed in sight.changed)]


_LONG_MAGNITUDES = ("attention", "short_mscale", "long_mscale")


def _with_magnitudes(scaling: LongRoPE, p: Mapping[str, Any], sight: Sight, literal: bool) -> Iterator[LongRoPE]:
    long = next((sight.at[n][1] for n in sight.changed), sight.factor)
    stated = p.get("attention"), None
    both = p.get("long_mscale"), p.get("short_mscale")
    choices: list[tuple[Any, Any]] = [stated, both, (None, None)]
    if literal:
        choices = [(long, None if sight.is_factor(long, sight.factor) else sight.factor)]
    for attention, attention_short in dict.fromkeys(choices):
        for choice in built(replace, scaling, attention=attention, attention_short=attention_short):
            if sight.is_factor(choice.attention_factor(), sight.factor):
                yield choice
                return
