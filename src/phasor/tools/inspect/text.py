"""Pictures for a terminal without pictures: block characters, one line per idea."""

import math
from collections.abc import Sequence

from .envelope import envelope
from .numbers import SpecFacts

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
    """The lowest mean cosine in each stretch of distances, on one scale.

    A line -> the axes along which it holds alone, None for all together.
    """
    moved = [None, *range(facts.spec.axes.count)] if facts.spec.axes.count > 1 else [None]
    curves = [envelope(facts, width, axis)[1].tolist() for axis in moved]
    low = min(map(min, curves))
    found: dict[str, list[int | None]] = {}
    for axis, curve in zip(moved, curves, strict=True):
        found.setdefault(sparkline(curve, low, 1.0), []).append(axis)
    return found


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
