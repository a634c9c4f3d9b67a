"""How many threads a command computes with."""

import os

from phasor.support.checks import whole

MOST_THREADS = 1024


def set_threads(threads: int) -> None:
    """Raise ``ValueError`` for a number of ``--threads`` for which torch may end the process without a word."""
    whole("--threads", threads)
    if threads > MOST_THREADS:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        raise ValueError(f"--threads must be at most {MOST_THREADS}, got {threads}; this machine has {cores} cores")
    import torch

    torch.set_num_threads(threads)
