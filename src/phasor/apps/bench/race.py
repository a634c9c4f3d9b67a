"""Calls against each other in one process, in a new random order every round: what slows one round slows all of it."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Calls: TypeAlias = Mapping[str, Callable[[], Any]]
Times: TypeAlias = dict[str, list[float]]  # of each call by name: seconds, one entry per round


def race(
    calls: Calls,
    *,
    rounds: int,
    repeat: int = 1,
    warm_up: int = 5,
    clock: Callable[[], Any] = time.thread_time,
    before: Callable[[], None] = lambda: None,
) -> Times:
    """Seconds of one call, by name and round. A round runs each call ``repeat`` times in a row.

    ``warm_up`` rounds go before, uncounted: an allocator needs some of the same calls until it reuses their memory.
    What a call returns is freed when the next one returns, the last after the clock has stopped: of a call that is
    timed alone, freeing is not part. ``clock`` gives instants whose difference is seconds; ``before`` goes ahead of
    each run, uncounted.

    >>> ticks = iter(range(100))
    >>> race({"a": lambda: None}, rounds=3, warm_up=0, clock=lambda: next(ticks))
    {'a': [1.0, 1.0, 1.0]}
    """
    order = random.Random(0)
    times: Times = {name: [] for name in calls}
    for n in range(-warm_up, rounds):
        for name in order.sample(list(calls), len(calls)):
            call = calls[name]
            before()
            start = clock()
            for _ in range(repeat):
                kept = call()
            spent = clock() - start
            del kept
            if n >= 0:
                times[name].append(spent / repeat)
    return times


def medians(times: Times) -> dict[str, float]:
    """The median seconds of each call."""
    return {name: statistics.median(spent) for name, spent in times.items()}
