"""How many cores there are for this process, and how many threads it may ask for."""

import os

from phasor.support.checks import whole

MOST_THREADS = 1024


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: int) -> None:
    """Raise ``ValueError`` for a number of ``--threads`` for which torch may end the process without a word."""
    whole("--threads", threads)
    if threads > MOST_THREADS:
        raise ValueError(f"--threads must be at most {MOST_THREADS}, got {threads}; this machine has {cores()} cores")
