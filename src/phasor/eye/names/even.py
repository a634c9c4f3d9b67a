"""Candidates whose frequencies fall evenly: divided, stopped, stretched."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...rotary.scaling import NTK, Linear, NTKFixed, Proportional
from .config_numbers import Numbers
from .sight import TOLERANCE, Sight
from .solved import SOLVED, exp, fall, is_one, is_positive, short_decimal, snapped, straight, with_scaling


def divided(sight: Sight, config: Numbers, ladder: list[float], literal: bool) -> Iterator[dict[str, Any]]:
    if literal or is_one(ladder[0]) or ladder[0] <= 0:
        return
    for factor in snapped(1 / ladder[0], config):
        yield from with_scaling(straight(sight, config), Linear(factor))


def scaled_positions(sight: Sight, config: Numbers, ladder: list[float]) -> Iterator[dict[str, Any]]:
    """Positions times a number, which is the same as frequencies times it: the config's, a short one, or 2 pi."""
    if is_one(ladder[0]) or ladder[0] <= 0:
        return
    turns = [2 * math.pi] if math.isclose(ladder[0], 2 * math.pi, rel_tol=TOLERANCE) else []
    for scale in (*turns, *snapped(ladder[0], config)):
        for fields in with_scaling(straight(sight, config), None):
            yield fields | {"position_scale": scale}


def stopped(sight: Sight, config: Numbers, ladder: list[float], literal: bool) -> Iterator[dict[str, Any]]:
    kept = sum(f > 0 for f in ladder)
    if literal or not (0 < kept < sight.rungs) or any(ladder[kept:]) or len(ladder) != sight.rungs:
        return
    stated = [p["fraction"] for p in config.parameters("fraction") if p]
    shares = [s for s in (*stated, kept / sight.rungs) if int(s * sight.rungs) == kept]
    factors = [1.0] if is_one(ladder[0]) else snapped(1 / ladder[0], config)
    for share in dict.fromkeys(shares):
        for factor in factors:
            yield from with_scaling(straight(sight, config), Proportional(share, factor))


def stretched(sight: Sight, config: Numbers, ladder: list[float], literal: bool) -> Iterator[dict[str, Any]]:
    """NTK: the ladder of a larger base. Only a base that the config calls one, or a short one with a stated factor."""
    n, slope = sight.rungs, fall(sight, ladder)
    if literal or n < 2 or slope <= 0 or not is_one(ladder[0]):
        return
    for base in config.bases:
        solved = exp((n * slope - math.log(base)) * (n - 1) / n)
        for factor in snapped(solved, config, digits=2):
            yield {"base": base, "scaling": NTK(factor)}
    stated = [p.get("alpha", p.get("factor")) for p in config.parameters("alpha", "factor")]
    for factor in dict.fromkeys(filter(is_positive, stated)):
        if short := short_decimal(exp(n * slope - math.log(factor) * n / (n - 1)), SOLVED, digits=2):
            yield {"base": short, "scaling": NTK(factor)}


def stretched_and_slowed(sight: Sight, config: Numbers, ladder: list[float], literal: bool) -> Iterator[dict[str, Any]]:
    n, slope = sight.rungs, fall(sight, ladder)
    if literal or slope <= 0 or not 0 < ladder[0] < 1:
        return
    for factor in snapped(exp(-n * math.log(ladder[0])), config):
        width = n * slope - math.log(factor)
        bases = [b for b in (*config.bases, *config.others) if b > 1 and abs(math.log(b) - width) < SOLVED]
        short = short_decimal(exp(width), SOLVED)
        for base in (*bases, *([short] if short else [])):
            yield {"base": base, "scaling": NTKFixed(factor)}
