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

from .result import Goal, Ratio

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYOUTS: dict[str, Any] = {
    "halves": {},
    "interleaved": {"interleaved": True},
    "permuted": {"interleaved": True, "permuted": True},
}
COPY, CLONE = "copy_", "clone"

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
    What a call returns is freed before the next one, which may have its memory, the last after the clock has stopped:
    of a call that is timed alone, freeing is not part. ``clock`` gives instants whose difference is seconds;
    ``before`` goes ahead of each run, uncounted.

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
                kept = None
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


def compared(times: Times, measured: str, unit: str, goal: Goal | None, moved: float = 1.0) -> Ratio:
    """The median of the ratios of every round, and their quartiles; ``moved``: how many times the bytes of the unit
    what is measured reads and writes."""
    ratios = [a / (b * moved) for a, b in zip(times[measured], times[unit], strict=True)]
    quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    low, middle, high = (round(ratio, 4) for ratio in quartiles)
    of, by = (1e6 * statistics.median(times[name]) for name in (measured, unit))
    return Ratio(measured, unit, round(of, 3), round(by * moved, 3), middle, (low, high), "quartiles", goal)


@dataclass(frozen=True)
class Case:
    """A row of the table of cases: what is timed, in units of what, and what the ratio should be.

    ``shape`` is ``(batch, heads of q, heads of k, tokens, channels)``; ``call`` names what phasor does with it, and
    ``spec`` says what its spec has beside a base. ``goals`` are by dtype. ``obstacle`` says why it cannot run here.
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
    gradient: bool = False
    repeat: int = 1
    obstacle: Callable[[], str] = field(default=lambda: "")


@dataclass(frozen=True)
class Work:
    """The tensors of one case in one dtype and layout. ``quick`` asks for sizes that take no time and mean nothing."""

    case: Case
    dtype: torch.dtype
    layout: str = "halves"
    kernel: str = "auto"
    quick: bool = False
    device: str = "cpu"

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        batch, q_heads, k_heads, tokens, width = self.case.shape
        return (min(batch, 4), q_heads, k_heads, min(tokens, 16), width) if self.quick else self.case.shape

    @property
    def interleaved(self) -> bool:
        return self.layout != "halves"

    @cached_property
    def spec(self) -> RotarySpec:
        spec = RotarySpec(head_dim=self.shape[-1], base=500_000.0, **LAYOUTS[self.layout])
        return spec.replace(**self.case.spec)

    @cached_property
    def positions(self) -> Tensor:
        """Sequences of a batch stand each at positions of its own; with two axes it is a square image."""
        batch, _, _, tokens, _ = self.shape
        at = torch.arange(tokens, device=self.device)
        side = round(tokens**0.5)
        if "axes" in self.case.spec:
            return torch.stack((at // side, at % side))
        first = 4097 + 61 * torch.arange(batch, device=self.device)
        return first[:, None] + at if batch > 1 else first + at

    @cached_property
    def rotation(self) -> Rotation:
        return Rotation.at(self.spec, self.positions, dtype=self.dtype)

    def heads(self, *numbers: int) -> list[Tensor]:
        """Tensors ``[batch, heads, tokens, channels]``, the same in every process."""
        batch, _, _, tokens, width = self.shape
        source = torch.Generator().manual_seed(0)
        made = [torch.randn(batch, n, tokens, width, generator=source) for n in numbers]
        return [x.to(self.device, self.dtype).requires_grad_(self.case.gradient) for x in made]

    @cached_property
    def pair(self) -> tuple[Tensor, Tensor]:
        q, k = self.heads(*self.shape[1:3])
        return q, k


def missing(*modules: str) -> str:
    absent = [name for name in modules if not find_spec(name)]
    return f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}" if absent else ""
