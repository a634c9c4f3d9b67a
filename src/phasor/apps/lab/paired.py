"""Differences between models that differ in one thing: same first weights, same batches, same bytes scored."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 2000
COVERAGE = 0.95

Measured = Mapping[int, Mapping[str, Any]]  # by seed, what `evaluate.summary` says


class Difference(NamedTuple):
    """A mean difference of losses and its interval, from so many seeds."""

    mean: float
    low: float
    high: float
    seeds: int


def paired(ours: Measured, theirs: Measured) -> Difference | None:
    """Mean of ``ours - theirs`` over the seeds that both have, None if there is none.

    The interval is that of the bootstrap (percentiles): blocks of the text are drawn again, the same ones for all
    models, and seeds too where there are several. One seed says nothing about the next.

    >>> paired({0: {"loss": 2.0, "blocks": [1.5, 2.5]}}, {0: {"loss": 1.0, "blocks": [0.5, 1.5]}})
    Difference(mean=1.0, low=1.0, high=1.0, seeds=1)
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    mean = float(np.mean([ours[s]["loss"] - theirs[s]["loss"] for s in seeds]))
    pairs = [(ours[s].get("blocks", []), theirs[s].get("blocks", [])) for s in seeds]
    sizes = {len(blocks) for pair in pairs for blocks in pair}
    if len(sizes) > 1 or sizes == {0}:
        return Difference(mean, mean, mean, len(seeds))
    low, high = _interval(np.array([np.subtract(*pair) for pair in pairs]))
    return Difference(mean, low, high, len(seeds))


def _interval(differences: np.ndarray) -> tuple[float, float]:
    """Of the mean of ``[seeds, blocks]``."""
    chance = np.random.default_rng(0)
    seeds, blocks = differences.shape
    means = differences[:, chance.integers(0, blocks, (RESAMPLES, blocks))].mean(-1)  # [seeds, resamples]
    drawn = np.take_along_axis(means, chance.integers(0, seeds, (seeds, RESAMPLES)), axis=0).mean(0)
    low, high = np.quantile(drawn, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def against(reference: str, measured: Mapping[str, Mapping[float, Measured]]) -> dict[str, list[tuple[float, Any]]]:
    """``{name: [(x, difference to the reference there)]}`` of all others, from ``{name: {x: measured}}``."""
    base = measured[reference]
    found = {
        name: [(x, d) for x in sorted(points) if x in base and (d := paired(points[x], base[x])) is not None]
        for name, points in measured.items()
        if name != reference
    }
    return {name: points for name, points in found.items() if points}


def protocol(reference: str, curves: Mapping[str, Sequence[tuple[float, Difference]]]) -> str:
    """In words, what the differences and their intervals mean."""
    fewest = min(d.seeds for points in curves.values() for _, d in points)
    drawn = (
        "blocks of the text and seeds drawn again; from few seeds it is too narrow rather than too wide"
        if fewest > 1
        else "blocks of the text drawn again; one seed, so it says nothing about another one"
    )
    return (
        f"Loss minus that of {reference}: models of one seed start from the same weights, see the same batches and are "
        f"scored on the same bytes. Intervals: {COVERAGE:.0%} of {RESAMPLES:,} bootstrap samples, {drawn}."
    )
