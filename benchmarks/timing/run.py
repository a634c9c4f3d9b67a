"""A whole run: on a CPU one child process for each kind of memory, because an allocator reads its variables at the
start; on a GPU in this process, whose allocator keeps memory by itself."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from phasor.rotary.kernels import check_name
from phasor.support.checks import whole
from phasor.support.cores import cores

from . import machine
from .cases import LARGE, SMALL
from .gpu import cases as gpu_cases
from .gpu.clock import CudaClock
from .gpu.libraries import LIBRARIES as GPU_LIBRARIES
from .libraries import LIBRARIES
from .llama import LLAMA
from .measure import Case, Clock, chosen, measure_on, race
from .result import HEAD, Record, Timing, line
from .shapes import SHAPES

CASES: tuple[Case, ...] = (*LARGE, *SMALL, *SHAPES, *LIBRARIES, *LLAMA)
COPIED = 2**30  # bytes, of which the rate of a copy is taken
QUICK = "--quick: tiny sizes and two rounds, which show that it runs; these times and ratios say nothing about speed"

named = partial(chosen, cases=CASES)


@dataclass(frozen=True)
class Skipped:
    """What could not run, and why; ``name`` is its key in the record, ``label`` what stands in the table."""

    name: str
    label: str
    reason: str


def run(
    cases: Sequence[str] = (),
    *,
    rounds: int = 30,
    threads: int = 1,
    kernel: str = "auto",
    quick: bool = False,
    device: str = "cpu",
    command: str = "",
    goals: bool = False,
    say: Callable[[str], None] = lambda line: None,
    clock: Clock | None = None,
) -> Record:
    """Measure cases by name (all, if none is named). ``say`` hears rows as they come, with ``goals`` beside them.

    ``clock``: that of a GPU; by default the one of ``device``. Raises ``ValueError`` for an unknown case, kernel or
    device, and for more threads than cores.
    """
    if device != "cpu":
        if not re.fullmatch(r"cuda(:\d+)?", device):
            raise ValueError(f"--device must be cpu, cuda or cuda:0, cuda:1 and so on, got {device!r}")
        if threads != 1:
            raise ValueError(f"--threads is for --device cpu, got {threads} with --device {device}")
        clock = CudaClock(device)
    plan = gpu_cases.named(cases) if clock else named(cases)
    whole("--rounds", rounds)
    whole("--threads", threads)
    if threads > cores():
        raise ValueError(f"--threads must be at most the number of cores, {cores()} here, got {threads}")
    check_name(kernel)
    options: dict[str, Any] = {"rounds": rounds, "kernel": kernel, "quick": quick}
    skipped = {library.name: library.missing() for library in GPU_LIBRARIES if clock and library.missing()}
    about = _device(clock, skipped, quick) if clock else None
    if about:
        say(f"{about['name']}: a copy reads and writes {about['copy_tb_per_s']:.2f} TB/s")
    for name, reason in skipped.items():
        say(f"{name:<20}not run: {reason}")
    if quick:
        say(QUICK)
    say(HEAD)
    rows: list[Timing] = []
    for result in _on_device(clock, plan, options) if clock else _in_children(plan, options | {"threads": threads}):
        if isinstance(result, Timing):
            rows.append(result)
            say(line(result, goals, quick))
        elif result.name not in skipped:  # else it is skipped in the other kind of memory as well
            skipped[result.name] = result.reason
            say(f"{result.label}not run: {result.reason}")
    if quick:
        say(QUICK)
    order = [case.name for case in plan]
    rows.sort(key=lambda row: order.index(row.case))
    return Record(
        command=command, threads=threads, rows=tuple(rows), skipped=skipped, device=about, **options, **machine.about()
    )


def _in_children(plan: Sequence[Case], options: dict[str, Any]) -> Iterator[Timing | Skipped]:
    for memory, cases in _by_memory(plan, options["quick"]).items():
        for result in _child(memory, {"memory": memory, "cases": [case.name for case in cases], **options}):
            if "row" in result:
                yield Timing.from_dict(result["row"])
            else:
                yield Skipped(result["case"], f"{result['case']:<20}", result["skipped"])


def _by_memory(cases: Sequence[Case], quick: bool) -> dict[str, list[Case]]:
    plan: dict[str, list[Case]] = {}
    for case in cases:
        for memory in machine.memories(case.large, quick):
            plan.setdefault(memory, []).append(case)
    return plan


def _child(memory: str, plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the child writes, line by line; a ``ValueError`` of its own is raised here."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "timing"], env=machine.environment(memory), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, encoding="utf-8",
    ) as child:  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps(plan))
        child.stdin.close()
        try:
            for text in child.stdout:
                result = json.loads(text)
                if "error" in result:
                    raise ValueError(result["error"])
                yield result
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise RuntimeError(f"the process that measures ended with {child.returncode}; its messages are above")


def _on_device(clock: Clock, plan: Sequence[Case], options: dict[str, Any]) -> Iterator[Timing | Skipped]:
    for case, dtype, layout in ((c, dtype, layout) for c in plan for dtype in c.dtypes for layout in c.layouts):
        rows, failures = measure_on(clock, case, dtype, layout, **options)
        yield from rows
        for name, reason in failures.items():
            yield Skipped(f"{name} in {case.name}, {dtype}, {layout}", f"{case.name:<20}{name} ", reason)


def _device(clock: Clock, missing: Collection[str], quick: bool) -> dict[str, Any]:
    """What there is to say of a GPU: its name, the rate of a copy, the versions of the libraries beside phasor."""
    versions = {library.name: library.version() for library in GPU_LIBRARIES if library.name not in missing}
    return {**clock.about(), "copy_tb_per_s": copy_rate(clock, quick), "peers": versions}


def copy_rate(clock: Clock, quick: bool = False) -> float:
    """Terabytes per second that a copy of a large tensor reads and writes: the limit of all that touches bytes once."""
    size = 2**16 if quick else COPIED
    source = torch.zeros(size, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    calls = {"copy": partial(target.copy_, source)}
    times = race(calls, rounds=3 if quick else 20, clock=clock.now, before=clock.before)
    return 2 * size / min(times["copy"]) / 1e12
