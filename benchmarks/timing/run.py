"""A whole run: on a CPU one child process for each kind of memory, because an allocator reads its variables at the
start; on a GPU in this process, whose allocator keeps memory by itself."""

import multiprocessing
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import torch

from phasor.kernels import available
from phasor.rotary.kernels import check_name
from phasor.support.checks import whole

from . import gpu
from .cases import CASES
from .measure import DTYPES, Case, Work, limit, race, rows
from .result import HEAD, Record, Timing, line, worst_first
from .ways import calls

# By glibc's allocator: blocks over the first threshold are mapped anew each time, and the kernel of the system clears
# their pages; blocks under it are taken from what was freed before.
GLIBC = {
    "fresh": {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    "reused": {"MALLOC_MMAP_THRESHOLD_": "8000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"},
}
AS_FOUND = "as found"  # whatever the allocator does by itself
QUICK = "--quick: tiny sizes and two rounds, which show that it runs; these times and ratios say nothing about speed"

Found: TypeAlias = tuple[list[Timing], dict[str, str]]  # rows, and why something has none


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    names: Sequence[str] = (),
    *,
    rounds: int = 30,
    threads: int = 1,
    kernel: str = "auto",
    quick: bool = False,
    device: str = "cpu",
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
    clock: Any = None,
) -> Record:
    """Measure cases by name (all, if none is named). ``say`` hears rows as they come. ``clock``: that of a GPU.

    Raises ``ValueError`` for an unknown case, kernel or device, and for more threads than cores.
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
    rounds = min(rounds, 2) if quick else rounds
    options: dict[str, Any] = {"rounds": rounds, "kernel": kernel, "quick": quick}
    about = None
    if clock:
        about = {**clock.about(), "copy_tb_per_s": gpu.copy_rate(clock, quick), "peers": gpu.versions()}
        say(f"{about['name']}: a copy reads and writes {about['copy_tb_per_s']:.2f} TB/s; beside {about['peers']}")
    say(QUICK if quick else HEAD)
    found: list[Timing] = []
    skipped: dict[str, str] = {}
    for timings, reasons in _on_device(clock, plan, options) if clock else _on_cpu(plan, threads, options):
        for name, reason in reasons.items():
            if name not in skipped:  # else it is skipped in the other kind of memory as well
                say(f"{name:<20}not run: {reason}")
        skipped |= reasons
        found += timings
        for row in timings:
            say(line(row))
    if not clock:
        rotating = [case for case in plan if case.measured == "phasor" and case.threads == 1 and not quick]
        limits = {(case.name, d): limit(case, d, time.thread_time) for case in rotating for d in case.dtypes}
        say("\nFarthest beyond its goal first, and the limit: a copy of as many bytes into memory that exists")
        for text in worst_first(found, limits):
            say(text)
    order = [case.name for case in plan]
    found.sort(key=lambda row: order.index(row.case))
    return Record(
        command=command, threads=threads, rows=tuple(found), skipped=skipped, device=about, **options, **_machine()
    )


def named(names: Sequence[str], cases: tuple[Case, ...] = CASES) -> tuple[Case, ...]:
    """The cases of these names, in the order of the table; all for none. ``ValueError`` for a name of no case."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise ValueError(f"--cases must be names out of {', '.join(known)}, with commas between, got {name!r}")
    return tuple(case for case in cases if not names or case.name in names)


def memories(case: Case, quick: bool) -> tuple[str, ...]:
    """In which memory a case is measured: where sizes are large, fresh and reused pages are two different things."""
    return tuple(GLIBC) if case.large and not quick and platform.libc_ver()[0] == "glibc" else (AS_FOUND,)


def _on_cpu(plan: Sequence[Case], threads: int, options: dict[str, Any]) -> Iterator[Found]:
    for memory in (*GLIBC, AS_FOUND):
        cases = [case for case in plan if memory in memories(case, options["quick"])]
        with started(memory) as child:
            for case in cases:
                if case.threads > cores():
                    yield [], {case.name: f"it needs {case.threads} cores, and there is {cores()} here"}
                elif reason := case.obstacle():
                    yield [], {case.name: reason}
                else:
                    for dtype in case.dtypes:
                        for layout in case.layouts:
                            arguments = (case.name, dtype, layout, memory, max(threads, case.threads))
                            yield child.submit(measure, *arguments, **options).result(), {}


@contextmanager
def started(memory: str) -> Iterator[ProcessPoolExecutor]:
    """A process of its own, whose allocator keeps memory in that way; it starts with the first call."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("MALLOC_")]:
        del os.environ[name]
    os.environ.update(GLIBC.get(memory, {}))
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
            yield child
    finally:
        os.environ.clear()
        os.environ.update(before)


def measure(
    name: str,
    dtype: str,
    layout: str,
    memory: str,
    threads: int,
    *,
    rounds: int,
    kernel: str = "auto",
    quick: bool = False,
    clock: Callable[[], float] | None = None,
) -> list[Timing]:
    """The rows of a case on a CPU. The clock is the CPU time of this thread, or on several threads that of the wall."""
    (case,) = named([name])
    work = Work(case, DTYPES[dtype], layout == "interleaved", kernel, threads, quick)
    torch.set_num_threads(threads)
    repeat, warm_up = (1, 1) if quick else (case.repeat, 5)
    clock = clock or (time.thread_time if threads == 1 else time.perf_counter)
    with torch.set_grad_enabled(case.gradient):
        times = race(calls(work), rounds=rounds, repeat=repeat, warm_up=warm_up, clock=clock)
    return rows(case, dtype, layout, memory, threads, times)


def _on_device(clock: Any, plan: Sequence[Case], options: dict[str, Any]) -> Iterator[Found]:
    quick = options["quick"]
    for case, dtype, layout in ((c, dtype, layout) for c in plan for dtype in c.dtypes for layout in c.layouts):
        work = Work(case, DTYPES[dtype], layout == "interleaved", options["kernel"], 1, quick, clock.device)
        with torch.set_grad_enabled(case.gradient):
            found, failures = gpu.calls(work, clock)
            repeat, rounds = 1 if quick else case.repeat, options["rounds"]
            times = race(found, rounds=rounds, repeat=repeat, clock=clock.now, before=clock.before)
        where = f"{case.name}, {dtype}, {layout}"
        yield rows(case, dtype, layout, "device", 1, times), {f"{n} in {where}": why for n, why in failures.items()}


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
