"""A search for divisors by their score alone: the best known schemes first, then small changes of the best so far.

Source: the evolutionary search of LongRoPE, arXiv:2402.13753, section 3.2 (mutation and crossover of divisors under
constraints).
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

KEPT = 8  # candidates that are remembered
PARENTS = 4
MIXED = 0.3  # how often two are joined at a pair
STEP = 0.35  # of the logarithm of divisors, one standard deviation
LARGEST = 2.0  # times the stretch


@dataclass(frozen=True, order=True)
class Candidate:
    """``divisors``: of the frequency of each pair; ``score``: the loss."""

    score: float
    divisors: tuple[float, ...]


def search(
    score: Callable[[tuple[float, ...]], float],
    starts: Sequence[tuple[float, ...]],
    stretch: float,
    *,
    budget: int,
    patience: int,
    seed: int,
    more: Callable[[int, Candidate], bool] = lambda done, best: True,
) -> Candidate:
    """The candidate with the lowest score of at most ``budget`` that are tried; the same for the same seed.

    ``starts`` are tried first; the search ends early when ``patience`` tries in a row have not bettered the best, or
    when ``more``, called with the tries done and the best so far, says no.

    >>> search(lambda d: (d[1] - 3.0) ** 2, [(1.0, 2.0)], 4.0, budget=200, patience=100, seed=0).score < 0.01
    True
    """
    dice = random.Random(seed)
    known = sorted(Candidate(score(divisors), divisors) for divisors in starts[:budget])
    since = 0
    for done in range(len(known), budget):
        if not more(done, known[0]):
            break
        divisors = _changed(known, stretch, dice)
        made = Candidate(score(divisors), divisors)
        since = 0 if made.score < known[0].score else since + 1
        known = sorted({*known, made})[:KEPT]
        if since >= patience:
            break
    return known[0]


def _changed(known: Sequence[Candidate], stretch: float, dice: random.Random) -> tuple[float, ...]:
    divisors = list(dice.choice(known[:PARENTS]).divisors)
    if dice.random() < MIXED:
        other = dice.choice(known[:PARENTS])
        cut = dice.randrange(len(divisors))
        divisors[cut:] = other.divisors[cut:]
    first, width = dice.randrange(len(divisors)), dice.choice((1, 2, 4))
    by = math.exp(dice.gauss(0, STEP))
    for i in range(first, min(first + width, len(divisors))):
        divisors[i] = min(max(divisors[i] * by, 1.0), LARGEST * stretch)
    return tuple(divisors)
