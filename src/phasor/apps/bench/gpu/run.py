"""A whole run on a device, in this process: its allocator keeps memory by itself, so there is only one kind of it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....rotary.kernels import check_name
from ....support.checks import whole
from .. import machine
from ..case import DTYPES, Setting
from ..race import Times, race
from ..result import Record, Row
from ..text import HEAD, line
from .cases import OnDevice, named
from .clock import Clock
from .peers import PEERS

MEMORY = "device"
NEEDED = ("phasor", "copy_")
COPIED = 2**30  # bytes, of which the rate of a copy is taken


def run_on(
    clock: Clock,
    cases: Sequence[str] = (),
    *,
    rounds: int = 30,
    kernel: str = "auto",
    quick: bool = False,
    command: str = "",
    goals: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Record:
    """Measure cases by name (all, if none is named) with the clock of a device; as `phasor.apps.bench.run`."""
    chosen = named(cases)
    whole("--rounds", rounds)
    check_name(kernel)
    skipped = {peer.name: reason for peer in PEERS if (reason := peer.missing())}
    device = {**clock.about(), "copy_tb_per_s": copy_rate(clock, quick)}
    device["peers"] = {peer.name: peer.version() for peer in PEERS if peer.name not in skipped}
    say(f"{device['name']}: a copy reads and writes {device['copy_tb_per_s']:.2f} TB/s")
    for name, reason in skipped.items():
        say(f"{name:<20}not run: {reason}")
    say(HEAD)
    rows: list[Row] = []
    for case in chosen:
        for dtype in case.dtypes:
            for layout in case.layouts:
                found, failed = measure(case, dtype, layout, clock, rounds=rounds, kernel=kernel, quick=quick)
                for row in found:
                    say(line(row, goals, quick))
                for name, reason in failed.items():
                    say(f"{case.name:<20}{name} not run: {reason}")
                    skipped[f"{name} in {case.name}, {dtype}, {layout}"] = reason
                rows += found
    return Record(
        command=command,
        threads=1,
        rounds=rounds,
        quick=quick,
        kernel=kernel,
        rows=tuple(rows),
        skipped=skipped,
        device=device,
        **machine.about(),
    )


def measure(
    case: OnDevice, dtype: str, layout: str, clock: Clock, *, rounds: int, kernel: str = "auto", quick: bool = False
) -> tuple[list[Row], dict[str, str]]:
    """Its rows, and the peers that do not run, with why. phasor or the copy that does not run is an error."""
    setting = Setting(DTYPES[dtype], layout == "interleaved", kernel, 1, quick, clock.device)
    failed: dict[str, str] = {}
    with torch.set_grad_enabled(case.gradient):
        calls = {}
        for name, call in case.make(setting).items():
            try:
                call()
                calls[name] = clock.captured(call, case.inside) if case.inside else call
            except Exception as error:  # of a library that is not ours: it is told, and the others go on
                if name in NEEDED:
                    raise
                failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        repeat, warm_up = (1, 1) if quick else (case.repeat, 5)
        times = race(calls, rounds=rounds, repeat=repeat, warm_up=warm_up, clock=clock.now, before=clock.before)
    if case.inside:
        times = {name: [t / case.inside for t in spent] for name, spent in times.items()}
    place = case.name, dtype, layout, MEMORY, 1
    return [Row(*place, **vars(finding)) for finding in case.judge(case, dtype, times)], failed


def copy_rate(clock: Clock, quick: bool = False) -> float:
    """Terabytes per second that a copy of a large tensor reads and writes: the limit of all that touches bytes once."""
    size = 2**16 if quick else COPIED
    source = torch.zeros(size, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    copy: Callable[[], Any] = lambda: target.copy_(source)  # noqa: E731
    times: Times = race({"copy": copy}, rounds=3 if quick else 20, clock=clock.now, before=clock.before)
    return 2 * size / min(times["copy"]) / 1e12
