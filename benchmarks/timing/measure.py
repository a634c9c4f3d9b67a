"""The measuring core of all benchmarks: calls raced in one process, by the clock of a CPU or of a GPU."""

import random
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation

from .result import Goal, Ratio, Timing

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYOUTS = ("halves", "interleaved")
COPY = "copy_"

Calls: TypeAlias = Mapping[str, Callable[[], Any]]
Times: TypeAlias = dict[str, list[float]]  # of each call by name: seconds, one entry per round


def race(
    calls: Calls,
    *,
    rounds: int,
    repeat: int = 1,
    warm_up: int = 5,
    clock: Callable[[], Any] = time.thread_time,
    before: Callable[[], None] = lambda: None,
) -> Times:
    """Seconds of one call, by name and round. A round runs each call ``repeat`` times in a row, in a new random order:
    what slows one round slows all of it.

    ``warm_up`` rounds go before, uncounted: an allocator needs some of the same calls until it reuses their memory.
    What a call returns is freed when the next one returns, the last after the clock has stopped: of a call that is
    timed alone, freeing is not part. ``clock`` gives instants whose difference is seconds; ``before`` goes ahead of
    each run, uncounted.

    >>> ticks = iter(range(100))
    >>> race({"a": lambda: None}, rounds=3, warm_up=0, clock=lambda: next(ticks))
    {'a': [1.0, 1.0, 1.0]}
    """
    order = random.Random(0)
    times: Times = {name: [] for name in calls}
    for n in range(-warm_up, rounds):
        for name in order.sample(list(calls), len(calls)):
            call = calls[name]
            before()
            start = clock()
            for _ in range(repeat):
                kept = call()
            spent = clock() - start
            del kept
            if n >= 0:
                times[name].append(spent / repeat)
    return times


def medians(times: Times) -> dict[str, float]:
    """The median seconds of each call."""
    return {name: statistics.median(spent) for name, spent in times.items()}


class Clock(ABC):
    """All that a measurement needs of a device: instants whose difference is in seconds of the device's own time."""

    device: str

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What the device is: name, memory, versions."""

    @abstractmethod
    def now(self) -> Any:
        """This moment in the order of the device's work."""

    @abstractmethod
    def before(self) -> None:
        """Ahead of every timed run: keep the device waiting until the host has queued what is timed."""

    @abstractmethod
    def captured(self, call: Callable[[], Any], times: int) -> Callable[[], Any]:
        """``call``, ``times`` in a row, as one CUDA graph: no host is in it, and its launch is paid once."""


@dataclass(frozen=True)
class Variant:
    """One dtype, layout and kernel of a case. ``quick`` asks for sizes that take no time and mean nothing."""

    dtype: torch.dtype
    interleaved: bool = False
    kernel: str = "auto"
    threads: int = 1
    quick: bool = False
    device: str = "cpu"

    def spec(self, head_dim: int) -> RotarySpec:
        return RotarySpec(head_dim=head_dim, base=500_000.0, interleaved=self.interleaved)

    def rotation(self, head_dim: int, positions: Tensor) -> Rotation:
        return Rotation.at(self.spec(head_dim), positions, dtype=self.dtype)

    def pair(self, batch: int, q_heads: int, k_heads: int, seq: int, width: int) -> tuple[Tensor, Tensor]:
        """q and k ``[batch, heads, seq, width]``, the same at every call."""
        source = torch.Generator().manual_seed(0)
        q = torch.randn(batch, q_heads, seq, width, generator=source)
        k = torch.randn(batch, k_heads, seq, width, generator=source)
        return q.to(self.device, self.dtype), k.to(self.device, self.dtype)


def compared(times: Times, measured: str, unit: str, goal: Goal | None) -> Ratio:
    """The median of the ratios of every round, and their quartiles."""
    ratios = [a / b for a, b in zip(times[measured], times[unit], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    median = medians(times)
    return Ratio(measured, unit, median[measured] * 1e6, median[unit] * 1e6, middle, (low, high), "quartiles", goal)


def one_ratio(case: "Case", dtype: str, times: Times) -> list[Ratio]:
    return [compared(times, case.measured, case.unit, case.goals.get(dtype))]


@dataclass(frozen=True)
class Case:
    """A row of the table of cases: what is timed, in units of what, and what the ratio should be.

    ``name`` is what ``--cases`` takes; ``about`` says in words what is timed. ``make`` gives the calls of a variant by
    name, among them ``measured`` and ``unit``, on tensors of their own. ``goals`` are by dtype; a case of several
    ratios has them from ``ratios``, with their goals, and ``goal_text`` says those. A ``large`` case is measured in
    fresh and in reused memory. ``obstacle`` says why it cannot run here, or nothing. On a GPU, ``in_graph`` calls are
    one CUDA graph, as decoding runs; with 0 they are launched one by one.
    """

    name: str
    about: str
    make: Callable[[Variant], Calls]
    unit: str
    goals: Mapping[str, Goal] = field(default_factory=dict)
    goal_text: str = ""
    measured: str = "phasor"
    dtypes: tuple[str, ...] = tuple(DTYPES)
    layouts: tuple[str, ...] = LAYOUTS
    large: bool = False
    gradient: bool = False
    threads: int = 1  # at least
    repeat: int = 1
    obstacle: Callable[[], str] = field(default=lambda: "")
    ratios: Callable[["Case", str, Times], list[Ratio]] = one_ratio
    in_graph: int = 0


def at_most(float32: float, bfloat16: float | None = None, float16: float | None = None) -> dict[str, Goal]:
    """Goals by dtype; half precision has that of the dtype before it, unless it is named."""
    bfloat16 = float32 if bfloat16 is None else bfloat16
    float16 = bfloat16 if float16 is None else float16
    bounds = zip(DTYPES, (float32, bfloat16, float16), strict=True)
    return {dtype: Goal("at most", bound) for dtype, bound in bounds}


def at_least(bound: float) -> dict[str, Goal]:
    return {dtype: Goal("at least", bound) for dtype in DTYPES}


def chosen(names: Sequence[str], cases: tuple[Case, ...], device: str = "") -> tuple[Case, ...]:
    """The cases of these names, in the order of the table; all for none. ``ValueError`` for a name of no case."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise ValueError(
                f"--cases must be names out of {', '.join(known)}{device}, with commas between, got {name!r}"
            )
    return tuple(case for case in cases if not names or case.name in names)


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
) -> list[Timing]:
    """The rows of a case on a CPU. The clock is the CPU time of this thread, or on several threads that of the wall."""
    threads = max(threads, case.threads)
    variant = Variant(DTYPES[dtype], layout == "interleaved", kernel, threads, quick)
    clock = clock or (time.thread_time if threads == 1 else time.perf_counter)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.set_grad_enabled(case.gradient):
            times = _race(case, case.make(variant), rounds, quick, clock=clock)
    finally:
        torch.set_num_threads(before)
    return _rows(case, dtype, times, layout, memory, threads)


def measure_on(
    clock: Clock, case: Case, dtype: str, layout: str, *, rounds: int, kernel: str = "auto", quick: bool = False
) -> tuple[list[Timing], dict[str, str]]:
    """The rows of a case on a device, and why other libraries fail; what phasor or the copy raises is passed on."""
    variant = Variant(DTYPES[dtype], layout == "interleaved", kernel, 1, quick, clock.device)
    failures: dict[str, str] = {}
    calls: dict[str, Callable[[], Any]] = {}
    with torch.set_grad_enabled(case.gradient):
        for name, call in case.make(variant).items():
            try:
                call()
                calls[name] = clock.captured(call, case.in_graph) if case.in_graph else call
            except Exception as error:  # of a library that is not ours: it is reported, and the others go on
                if name in ("phasor", COPY):
                    raise
                failures[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        times = _race(case, calls, rounds, quick, clock=clock.now, before=clock.before)
    if case.in_graph:
        times = {name: [t / case.in_graph for t in spent] for name, spent in times.items()}
    return _rows(case, dtype, times, layout, "device", 1), failures


def _race(case: Case, calls: Calls, rounds: int, quick: bool, **clock: Any) -> Times:
    repeat, warm_up = (1, 1) if quick else (case.repeat, 5)
    return race(calls, rounds=rounds, repeat=repeat, warm_up=warm_up, **clock)


def _rows(case: Case, dtype: str, times: Times, layout: str, memory: str, threads: int) -> list[Timing]:
    return [
        Timing(case.name, dtype, layout, memory, threads, **vars(ratio)) for ratio in case.ratios(case, dtype, times)
    ]
