"""A whole run: one child process for each kind of memory, because an allocator reads its variables at the start."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...rotary.kernels import check_name
from ...support.checks import whole
from . import machine
from .case import Case
from .cases import named
from .gpu import CudaClock, run_on
from .result import Record, Row
from .text import HEAD, line


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
) -> Record:
    """Measure cases by name (all, if none is named). ``say`` hears rows as they come, with ``goals`` beside them.

    Raises ``ValueError`` for an unknown case, kernel or device, and for more threads than cores.
    """
    if device != "cpu":
        if not re.fullmatch(r"cuda(:\d+)?", device):
            raise ValueError(f"--device must be cpu, cuda or cuda:0, cuda:1 and so on, got {device!r}")
        if threads != 1:
            raise ValueError(f"--threads is for --device cpu, got {threads} with --device {device}")
        return run_on(
            CudaClock(device), cases, rounds=rounds, kernel=kernel, quick=quick, command=command, goals=goals, say=say
        )
    chosen = named(cases)
    whole("--rounds", rounds)
    whole("--threads", threads)
    if threads > machine.cores():
        raise ValueError(f"--threads must be at most the number of cores, {machine.cores()} here, got {threads}")
    check_name(kernel)
    say(HEAD)
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    options = {"rounds": rounds, "threads": threads, "kernel": kernel, "quick": quick}
    for memory, of_memory in _by_memory(chosen, quick).items():
        for found in _child(memory, {"memory": memory, "cases": [case.name for case in of_memory], **options}):
            if "row" in found:
                rows.append(Row.from_dict(found["row"]))
                say(line(rows[-1], goals, quick))
            elif found["case"] not in skipped:  # else it is skipped in the other memory as well
                skipped[found["case"]] = found["skipped"]
                say(f"{found['case']:<20}not run: {found['skipped']}")
    order = [case.name for case in chosen]
    rows.sort(key=lambda row: order.index(row.case))
    return Record(
        command=command,
        threads=threads,
        rounds=rounds,
        quick=quick,
        kernel=kernel,
        rows=tuple(rows),
        skipped=skipped,
        **machine.about(),
    )


def _by_memory(cases: Sequence[Case], quick: bool) -> dict[str, list[Case]]:
    plan: dict[str, list[Case]] = {}
    for case in cases:
        for memory in machine.memories(case.large, quick):
            plan.setdefault(memory, []).append(case)
    return plan


def _child(memory: str, plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the child says, line by line; a ``ValueError`` of its own is raised here."""
    command = [sys.executable, "-P", "-m", "phasor.apps.bench"]
    with subprocess.Popen(
        command,
        env=machine.environment(memory),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps(plan))
        child.stdin.close()
        try:
            for text in child.stdout:
                found = json.loads(text)
                if "error" in found:
                    raise ValueError(found["error"])
                yield found
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise RuntimeError(f"the process that measures ended with {child.returncode}; what it said stands above")
