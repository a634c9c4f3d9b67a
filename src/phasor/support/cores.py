"""How many cores there are for this process, and no more threads than that: torch ends the process for some counts."""

import os

from .checks import whole


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: int) -> None:
    """Raise ``ValueError`` unless there is a core for each thread that ``--threads`` asks for."""
    whole("--threads", threads)
    if threads > cores():
        raise ValueError(f"--threads must be at most the number of cores, {cores()} here, got {threads}")
