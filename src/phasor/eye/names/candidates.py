"""Every candidate in the order in which they are tried, the simplest first."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...rotary.scaling import Linear, LongRoPE, Proportional, Scaling, YaRN
from .sight import TOLERANCE, Sight
from .stated import Stated

Bases = list[tuple[float, int | None]]  # with the divisor of the exponent where it is not the width

_SOLVED = 1e-5  # how far a number solved from frequencies may lie from the number itself, relatively
_WIDEST = 1024  # no head has more channels


def candidates(sight: Sight, stated: Stated) -> Iterator[dict[str, Any]]:
    """Fields to try: an even ladder, the scalings that the config states, then what is solved from the ladder alone."""
    straight = _bases(sight, stated, sight.ladder)
    yield from _with(straight)
    _, factor = sight.at[None]  # which a scaling may state, where no formula gives it
    literal = [replace(s, attention=factor) for s in stated.scalings if isinstance(s, (YaRN, LongRoPE))]
    for scaling in dict.fromkeys((*stated.scalings, *literal)):
        yield from _with(_behind(scaling, sight, stated), scaling=scaling)
    first, kept = sight.ladder[min(sight.ladder)], sum(f > 0 for f in sight.ladder.values())
    divided = first > 0 and abs(first - 1) > 4 * TOLERANCE
    for divisor in _snapped(1 / first, stated) if divided else [1.0]:  # by 1 linear scaling is none
        yield from _with(straight, scaling=Linear(divisor))
        if 0 < kept < sight.rungs:
            yield from _with(straight, scaling=Proportional(kept / sight.rungs, divisor))
    for scale in (2 * math.pi, *_snapped(first, stated)) if divided and not sight.exact else ():
        yield from _with(straight, position_scale=scale)


def _with(bases: Bases, **fields: Any) -> Iterator[dict[str, Any]]:
    for base, dim in bases:
        yield {"base": base} | ({} if dim is None else {"exponent_dim": dim}) | fields


def _behind(scaling: Scaling, sight: Sight, stated: Stated) -> Bases:
    """Bases of the ladder that a scaling was made from: behind a list, straight, or shown by the first two pairs."""
    ladder = sight.ladder
    if isinstance(scaling, LongRoPE):
        divisors = scaling.short_factor
        return _bases(sight, stated, {i: f * divisors[i] for i, f in ladder.items() if i < len(divisors)})
    front = _bases(sight, stated, dict(list(ladder.items())[:2]), 2 * _SOLVED)
    called = ((base, None) for base in stated.bases)
    return list(dict.fromkeys((*called, *_bases(sight, stated, ladder), *front)))


def _bases(sight: Sight, stated: Stated, ladder: Mapping[int, float], tolerance: float = _SOLVED) -> Bases:
    """Bases of the exponent by which a ladder falls from rung to rung: stated ones, then a decimal of three digits."""
    if len(ladder) == 1:  # which every base gives
        return [(stated.bases[0] if stated.bases else 10_000.0, None)]
    turning = [(i, math.log(f)) for i, f in ladder.items() if f > 0]
    fall = (turning[0][1] - turning[-1][1]) / (turning[-1][0] - turning[0][0]) if len(turning) > 1 else 0
    width = fall * sight.rungs
    if not 0 < width < 700:  # which is e to a number that a float can hold
        return []

    def fit(number: float) -> bool:
        return number > 1 and abs(math.log(number) - width) < tolerance

    found: Bases = [(n, None) for n in stated.numbers if fit(n)]
    for base in stated.bases:  # over a width that is not the number of pairs
        dim = 2 * math.log(base) / fall
        if dim < _WIDEST and abs(dim - round(dim)) < tolerance * dim and round(dim) != 2 * sight.rungs:
            found.append((base, round(dim)))
    short = float(f"{math.exp(width):.2e}")
    return [*found, (short, None)] if fit(short) and (short, None) not in found else found


def _snapped(value: float, stated: Stated) -> list[float]:
    """What a solved number may be: one of the config's, else a decimal of three digits."""
    numbers = dict.fromkeys((*stated.numbers, float(f"{value:.2e}")))
    return [n for n in numbers if 0 < n < 1e300 and math.isclose(n, value, rel_tol=_SOLVED)]
