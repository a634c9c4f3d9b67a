"""Pictures for a terminal without pictures: block characters, one line per idea."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .numbers import SpecFacts, decay

_BLOCKS = "▁▂▃▄▅▆▇█"
REGIME_SIGNS = {"kept": "█", "blended": "▒", "slowed": "░", "stopped": "·"}


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """Values as blocks between ``low`` and ``high``, by default their smallest and largest.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▅█'
    """
    if not values:
        return ""
    low, high = min(values) if low is None else low, max(values) if high is None else high
    span = (high - low) or 1.0
    return "".join(_BLOCKS[int((v - low) / span * (len(_BLOCKS) - 1))] for v in values)


def wavelength_line(facts: SpecFacts, width: int = 64) -> str:
    """log wavelength per pair; stopped pairs as dots."""
    chosen = _thin(facts.wavelengths, width)
    finite = [math.log(w) for w in chosen if math.isfinite(w)]
    blocks = iter(sparkline(finite))
    return "".join(next(blocks) if math.isfinite(w) else "·" for w in chosen)


def regime_line(facts: SpecFacts, width: int = 64) -> str:
    """What the scaling does to each pair: kept █, blended ▒, slowed ░, stopped ·"""
    return "".join(REGIME_SIGNS[r] for r in _thin(facts.regimes, width))


def decay_lines(facts: SpecFacts, width: int = 64) -> dict[str, list[int | None]]:
    """Mean cosine by distance, on one scale: a line -> the axes along which it holds alone, None for all together."""
    distances = log_distances(facts, width)
    moved = [None, *range(facts.spec.axes.count)] if facts.spec.axes.count > 1 else [None]
    curves = [decay(facts.spec, distances, facts.seq_len, axis).tolist() for axis in moved]
    low = min(map(min, curves))
    found: dict[str, list[int | None]] = {}
    for axis, curve in zip(moved, curves, strict=True):
        found.setdefault(sparkline(curve, low, 1.0), []).append(axis)
    return found


def log_distances(facts: SpecFacts, count: int) -> Tensor:
    """Distances up to the maximum of a spec, evenly spaced on a log scale: whole ones, unless coordinates are real."""
    last = math.log10(max(2, facts.max_position - 1))
    if facts.spec.coordinates == "real":
        return torch.logspace(-math.log10(64), last, count, dtype=torch.float64)
    return torch.logspace(0, last, count, dtype=torch.float64).long()


def strip(owner: Sequence[int | None], signs: str = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> str:
    """One sign per element, a dot for None.

    >>> strip([0, 0, 1, None])
    '112·'
    """
    return "".join("·" if o is None else signs[o % len(signs)] for o in owner)


def wrapped(line: str, width: int = 64) -> list[str]:
    """A long line of signs in pieces, none left out.

    >>> wrapped("aabbc", 2)
    ['aa', 'bb', 'c']
    """
    return [line[i : i + width] for i in range(0, len(line), width)]


def _thin(values: Sequence, width: int) -> list:  # type: ignore[type-arg]
    if len(values) <= width:
        return list(values)
    return [values[i * len(values) // width] for i in range(width)]
