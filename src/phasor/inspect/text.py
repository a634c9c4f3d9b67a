"""Pictures for a terminal without pictures: block characters, one line per idea."""

import math
from collections.abc import Sequence

import torch

from .numbers import SpecFacts, decay

_BLOCKS = "▁▂▃▄▅▆▇█"
_REGIME_SIGNS = {"kept": "█", "blended": "▒", "slowed": "░", "stopped": "·"}


def sparkline(values: Sequence[float]) -> str:
    """Values as blocks between their smallest and largest.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▅█'
    """
    if not values:
        return ""
    low, high = min(values), max(values)
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
    return "".join(_REGIME_SIGNS[r] for r in _thin(facts.regimes, width))


def decay_line(facts: SpecFacts, width: int = 64) -> str:
    """Mean cosine over distances from 0 to the maximum position, evenly spaced on a log scale."""
    distances = torch.logspace(0, math.log10(max(2, facts.max_position - 1)), width, dtype=torch.float64).long()
    return sparkline(decay(facts.spec, distances, facts.seq_len).tolist())


def strip(owner: Sequence[int | None], signs: str = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> str:
    """One sign per element, a dot for None.

    >>> strip([0, 0, 1, None])
    '112·'
    """
    return "".join("·" if o is None else signs[o % len(signs)] for o in owner)


def _thin(values: Sequence, width: int) -> list:  # type: ignore[type-arg]
    if len(values) <= width:
        return list(values)
    return [values[i * len(values) // width] for i in range(width)]
