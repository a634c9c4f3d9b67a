"""Times that may be compared: taken in turns, inside one run."""

import statistics
import time
from collections.abc import Callable


def medians(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each call over interleaved ``rounds``, after two that warm up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if i > 1:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(spent) for name, spent in times.items()}
