"""The one race: calls in turn in one process, in a new order each round, by the clock of a CPU or of a GPU."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, TypeAlias

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation

from .result import Goal, Ratio, Timing

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
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


def ratio(times: Times, measured: str, unit: str) -> float:
    """The median over rounds of one time in units of another."""
    return statistics.median(a / b for a, b in zip(times[measured], times[unit], strict=True))


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

    ``shape`` is ``(batch, heads of q, heads of k, tokens, channels)``; ``call`` names what phasor does with it, and
    ``spec`` says what its spec has beside a base. ``goals`` are by dtype; a case of several ratios has them from
    ``ratios``. A ``large`` case is measured in fresh and in reused memory. ``obstacle`` says why it cannot run here.
    """

    name: str
    about: str
    shape: tuple[int, int, int, int, int]
    call: str
    unit: str
    goals: Mapping[str, Goal] = field(default_factory=dict)
    measured: str = "phasor"
    spec: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = tuple(DTYPES)
    layouts: tuple[str, ...] = ("halves", "interleaved")
    large: bool = False
    gradient: bool = False
    threads: int = 1  # at least
    repeat: int = 1
    obstacle: Callable[[], str] = field(default=lambda: "")
    ratios: Callable[["Case", str, Times], list[Ratio]] = one_ratio


@dataclass(frozen=True)
class Work:
    """The tensors of one case in one dtype and layout. ``quick`` asks for sizes that take no time and mean nothing."""

    case: Case
    dtype: torch.dtype
    interleaved: bool = False
    kernel: str = "auto"
    threads: int = 1
    quick: bool = False
    device: str = "cpu"

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        batch, q_heads, k_heads, tokens, width = self.case.shape
        return (min(batch, 4), q_heads, k_heads, min(tokens, 16), width) if self.quick else self.case.shape

    @cached_property
    def spec(self) -> RotarySpec:
        spec = RotarySpec(head_dim=self.shape[-1], base=500_000.0, interleaved=self.interleaved)
        return spec.replace(**self.case.spec)

    @cached_property
    def positions(self) -> Tensor:
        """Decoded tokens have each a position of its own; prompts begin at 0; with two axes it is a square image."""
        batch, _, _, tokens, _ = self.shape
        if tokens == 1:
            first = 4097 + 61 * torch.arange(batch)
            return (first if batch == 1 else first[:, None]).to(self.device)
        at = torch.arange(tokens, device=self.device)
        side = round(tokens**0.5)
        return torch.stack((at // side, at % side)) if "axes" in self.case.spec else at

    @cached_property
    def rotation(self) -> Rotation:
        return Rotation.at(self.spec, self.positions, dtype=self.dtype)

    @cached_property
    def pair(self) -> tuple[Tensor, Tensor]:
        """q and k ``[batch, heads, tokens, channels]``, the same in every process."""
        batch, q_heads, k_heads, tokens, width = self.shape
        source = torch.Generator().manual_seed(0)
        q, k = (torch.randn(batch, heads, tokens, width, generator=source) for heads in (q_heads, k_heads))
        q, k = q.to(self.device, self.dtype), k.to(self.device, self.dtype)
        return q.requires_grad_(self.case.gradient), k.requires_grad_(self.case.gradient)


def limit(case: Case, dtype: str, clock: Callable[[], float]) -> float:
    """Microseconds in which the bytes of q and k are read and written, by a copy into memory that exists; with
    their gradients, twice. In place it may take less, as half the memory is touched.
    """
    batch, q_heads, k_heads, tokens, width = case.shape
    x = torch.ones(batch * (q_heads + k_heads) * tokens * width, dtype=DTYPES[dtype])
    y = x.clone()
    copies = race({"copy": lambda: y.copy_(x)}, rounds=5, repeat=case.repeat, clock=clock)["copy"]
    return statistics.median(copies) * 1e6 * (2 if case.gradient else 1)


def rows(case: Case, dtype: str, layout: str, memory: str, threads: int, times: Times) -> list[Timing]:
    return [Timing(case.name, dtype, layout, memory, threads, **vars(one)) for one in case.ratios(case, dtype, times)]


def missing(*modules: str) -> str:
    absent = [name for name in modules if not find_spec(name)]
    return f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}" if absent else ""
