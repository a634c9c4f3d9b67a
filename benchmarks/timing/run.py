"""A whole run: all cases in one process, on a CPU or on a GPU, by a clock of its own."""

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import torch

from phasor.kernels import available
from phasor.rotary.kernels import check_name
from phasor.support.checks import one_of, whole

from . import gpu
from .cases import CASES, LAW, Law
from .measure import DTYPES, Case, Ratio, Times, Work, compared, race
from .result import HEAD, Record, Timing, line, worst_first
from .ways import calls

# The bytes from which glibc's allocator maps a block anew, whose pages the system then clears; smaller ones are taken
# from what was freed before.
MAPPED = {"reused": 2**30, "fresh": 10**6}
QUICK = "--quick: tiny sizes and two rounds, which show that it runs; these times and ratios say nothing about speed"
A_RUN = 0.5e-3  # seconds, at least, of the calls of one kind in one round
MOST_SHOWN = 40

Found: TypeAlias = tuple[list[Timing], dict[str, str]]  # rows, and why something has none


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep(memory: str) -> None:
    """How freed memory is kept from now on; ``ValueError`` where the allocator is another one than glibc's."""
    one_of("--memory", memory, tuple(MAPPED))
    if platform.libc_ver()[0] != "glibc":
        raise ValueError("--memory needs glibc's allocator, which this system has not; leave it out")
    tell, (threshold, trim) = ctypes.CDLL(None).mallopt, (-3, -1)  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    tell(threshold, MAPPED[memory])
    tell(trim, 2**30)


def run(
    names: Sequence[str] = (),
    *,
    rounds: int = 30,
    threads: int = 1,
    kernel: str = "auto",
    quick: bool = False,
    device: str = "cpu",
    memory: str = "",
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
    clock: Any = None,
) -> Record:
    """Measure cases by name; if none is named the law of calls, on a GPU all. ``say`` hears how far it is, and in the
    end the rows, the worst first. ``clock``: that of a GPU.

    Raises ``ValueError`` for an unknown case, kernel, memory or device, and for more threads than cores.
    """
    if device != "cpu":
        if not re.fullmatch(r"cuda(:\d+)?", device):
            raise ValueError(f"--device must be cpu, cuda or cuda:0, cuda:1 and so on, got {device!r}")
        if threads != 1:
            raise ValueError(f"--threads is for --device cpu, got {threads} with --device {device}")
        clock = gpu.CudaClock(device)
    plan = named(names, gpu.CASES if clock else CASES)
    whole("--rounds", rounds)
    whole("--threads", threads)
    if threads > cores():
        raise ValueError(f"--threads must be at most the number of cores, {cores()} here, got {threads}")
    check_name(kernel)
    if memory:
        keep(memory)
    rounds = min(rounds, 2) if quick else rounds
    options: dict[str, Any] = {"rounds": rounds, "kernel": kernel, "quick": quick}
    about = None
    if clock:
        about = {**clock.about(), "copy_tb_per_s": gpu.copy_rate(clock, quick), "peers": gpu.versions()}
        say(f"{about['name']}: a copy reads and writes {about['copy_tb_per_s']:.2f} TB/s; beside {about['peers']}")
    found: list[Timing] = []
    skipped: dict[str, str] = {}
    for timings, reasons in _all(plan, {**options, "threads": threads, "memory": memory, "clock": clock}):
        for name, reason in reasons.items():
            say(f"{name:<20}not run: {reason}")
        skipped |= reasons
        found += timings
    worst = worst_first(found)
    late = sum(row.met is False for row in worst)
    say(QUICK if quick else f"{late} of {len(worst)} beyond their goals; those farthest beyond or next to it:\n{HEAD}")
    for row in worst[:MOST_SHOWN]:
        say(line(row))
    return Record(
        command=command, threads=threads, rows=tuple(found), skipped=skipped, device=about, **options, **_machine()
    )


def named(names: Sequence[str], cases: tuple[Case, ...] = CASES) -> tuple[Case, ...]:
    """The cases of these names, in the order of the table; for none the law, or where there is no law, all.
    ``ValueError`` for a name of no case."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise ValueError(f"--cases must be names out of {', '.join(known)}, with commas between, got {name!r}")
    chosen = names or [case.name for case in (LAW if cases is CASES else cases)]
    return tuple(case for case in cases if case.name in chosen)


def _all(plan: Sequence[Case], options: dict[str, Any]) -> Iterator[Found]:
    for case in plan:
        if reason := case.obstacle():
            yield [], {case.name: reason}
            continue
        for dtype in case.dtypes:
            for layout in case.layouts:
                yield measure(case, dtype, layout, **options)


def measure(
    case: Case, dtype: str, layout: str, *, rounds: int, kernel: str = "auto", quick: bool = False, threads: int = 1,
    memory: str = "", clock: Any = None,
) -> Found:  # fmt: skip
    """The rows of a case, on a GPU by its clock. That of a CPU is the CPU time of this thread, or on several threads
    the time on the wall."""
    work = Work(case, DTYPES[dtype], layout, kernel, quick, clock.device if clock else "cpu")
    torch.set_num_threads(threads)
    by: dict[str, Any] = {"clock": time.thread_time if threads == 1 else time.perf_counter, "warm_up": 3}
    if clock:
        by = {"clock": clock.now, "before": clock.before}
    with torch.set_grad_enabled(case.gradient):
        raced, failures = gpu.calls(work, clock) if clock else (calls(work), {})
        repeat = 1 if quick else case.repeat
        if not (quick or clock):
            once = min(min(spent) for spent in race(raced, rounds=2, **by).values())
            repeat = max(1, round(A_RUN / max(once, 1e-7)))
        times = race(raced, rounds=rounds, repeat=repeat, **by)
    where = case.name, dtype, layout, "device" if clock else memory or "as found", threads
    found = gpu.ratios(case, dtype, times) if clock else ratios(case, dtype, layout, times)
    return [Timing(*where, **vars(one)) for one in found], {
        f"{name} in {case.name}, {dtype}, {layout}": why for name, why in failures.items()
    }


def ratios(case: Case, dtype: str, layout: str, times: Times) -> list[Ratio]:
    if not isinstance(case, Law):
        return [compared(times, case.measured, case.unit, case.goals.get(dtype))]
    ways = [name for name in times if name != case.unit]
    return [compared(times, way, case.unit, case.goal(way, dtype, layout), case.moved(way)) for way in ways]


def _machine() -> dict[str, Any]:
    """The fields of a `Record` that no option decides."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": next(names, platform.processor() or platform.machine()),
        "cores": cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "phasor": version("phasor-rope"),
        "kernels": available(),
    }
