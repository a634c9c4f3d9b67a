"""One cell of the table: a case at one dtype, layout and kind of memory, in this process."""

import time
from collections.abc import Callable

import torch

from .case import DTYPES, Case, Setting
from .race import race
from .result import Row


def measure(
    case: Case,
    dtype: str,
    layout: str,
    *,
    memory: str,
    rounds: int,
    threads: int = 1,
    kernel: str = "auto",
    quick: bool = False,
    clock: Callable[[], float] | None = None,
) -> list[Row]:
    """Its rows. The clock is the CPU time of this thread, or on several threads that of the wall."""
    threads = max(threads, case.threads)
    setting = Setting(DTYPES[dtype], layout == "interleaved", kernel, threads, quick)
    clock = clock or (time.thread_time if threads == 1 else time.perf_counter)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.set_grad_enabled(case.gradient):
            calls = case.make(setting)
            repeat, warm_up = (1, 1) if quick else (case.repeat, 5)
            times = race(calls, rounds=rounds, repeat=repeat, warm_up=warm_up, clock=clock)
    finally:
        torch.set_num_threads(before)
    place = case.name, dtype, layout, memory, threads
    return [Row(*place, **vars(finding)) for finding in case.judge(case, dtype, times)]
