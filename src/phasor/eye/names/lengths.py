"""Candidates whose frequencies change with the length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...rotary.scaling import DynamicNTK, Scaling, SteppedNTK
from .config_numbers import Numbers
from .lists import searched
from .sight import Sight
from .solved import built, exp, fall, is_one, rounded, straight


def lengthwise(sight: Sight, config: Numbers) -> Iterator[dict[str, Any]]:
    """Candidates where something changed with the length."""
    ladder = sight.ladder()
    for literal in (False, True):
        yield from searched(sight, config, ladder, literal)
    if not is_one(ladder[0]):
        return
    for base, _ in straight(sight, config):
        for maker in (dynamic_stated, stepped_stated, _dynamic_solved, _stepped_solved):
            for scaling in maker(sight, config, base):
                yield {"base": base, "scaling": scaling}


def dynamic_stated(sight: Sight, config: Numbers, base: float) -> Iterator[Scaling]:
    for p in config.parameters("factor"):
        for start in config.lengths if p else ():
            yield from built(DynamicNTK, p["factor"], start)


def stepped_stated(sight: Sight, config: Numbers, base: float) -> Iterator[Scaling]:
    for start in config.lengths:
        yield from built(SteppedNTK, start)


def _stretch(sight: Sight, base: float, length: int) -> float:
    """By how much the ladder's slowest pair is slowed at that length: the factor of an NTK scaling."""
    n = sight.rungs
    return exp((n * fall(sight, sight.ladder(length)) - math.log(base)) * (n - 1) / n)


def _dynamic_solved(sight: Sight, config: Numbers, base: float) -> Iterator[Scaling]:
    """``s = factor * L / L0 - (factor - 1)`` at one length for every start of the config, or at two for both."""
    last = sight.changed[-1]
    slowed = _stretch(sight, base, last)
    starts: list[float] = [n for n in config.whole if n < sight.changed[0]]
    if len(sight.changed) > 1:
        slope = (slowed - _stretch(sight, base, sight.changed[0])) / (last - sight.changed[0])
        factor = slope * last + 1 - slowed
        starts += [round(factor / slope)] if slope > 0 and factor > 0 else []
    for start in starts:
        for factor in rounded((slowed - 1) / (last / start - 1), config) if start < last else ():
            yield from built(DynamicNTK, factor, int(start))


def _stepped_solved(sight: Sight, config: Numbers, base: float) -> Iterator[Scaling]:
    stretches = {n: _stretch(sight, base, n) for n in sight.changed}
    for start in config.whole:
        for scaling in built(SteppedNTK, start):
            if all(abs(scaling.factor_at(n) - s) < 1e-3 * s for n, s in stretches.items()):
                yield scaling
