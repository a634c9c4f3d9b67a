"""What was measured: a row per number, a record per run, both as JSON, and rows as lines for a terminal."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from phasor.support.checks import keys_once, one_of
from phasor.support.whole_files import write_whole

HEAD = f"{'case':<20}{'measured':<21}{'dtype':<10}{'layout':<13}{'time':>10}  {'ratio':>6}  {'quartiles':<12}  goal"


@dataclass(frozen=True)
class Goal:
    """What a ratio should be: ``at most`` or ``at least`` a bound.

    >>> Goal("at most", 0.9).met(0.91), Goal("at least", 1.0).met(1.02)
    (False, True)
    """

    rule: str
    bound: float

    def __post_init__(self) -> None:
        one_of("rule of a goal", self.rule, ("at most", "at least"))

    def met(self, ratio: float) -> bool:
        return self.beyond(ratio) <= 1

    def beyond(self, ratio: float) -> float:
        """How many times as slow as the goal."""
        return ratio / self.bound if self.rule == "at most" else self.bound / ratio

    def __str__(self) -> str:
        return f"{self.rule} {self.bound:g}"


@dataclass(frozen=True)
class Cell:
    """Where in the table a number stands."""

    case: str
    dtype: str
    layout: str
    memory: str
    threads: int


@dataclass(frozen=True)
class Ratio:
    """What one race says: the time of ``measured`` as a multiple of that of ``unit``.

    ``ratio`` is the median over rounds of the two times' ratio in one round, ``spread`` the quartiles of those ratios
    (or what ``spread_of`` says); ``us`` and ``unit_us`` are the median times in microseconds.
    """

    measured: str
    unit: str
    us: float
    unit_us: float
    ratio: float
    spread: tuple[float, float] | None
    spread_of: str
    goal: Goal | None


@dataclass(frozen=True)
class Timing(Ratio, Cell):
    """One number of the table: its cell, then its ratio."""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.goal.met(self.ratio)

    @property
    def beyond(self) -> float:
        """How many times as slow as its goal; 0 without one."""
        return 0.0 if self.goal is None else self.goal.beyond(self.ratio)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Timing":
        goal, spread = data["goal"], data["spread"]
        spread = None if spread is None else (float(spread[0]), float(spread[1]))
        return cls(**data | {"goal": None if goal is None else Goal(**goal), "spread": spread})


@dataclass(frozen=True)
class Record:
    """One run: what was called, where, with which versions, its rows, and the cases that could not run, with why.

    ``kernel`` is what ``--kernel`` named, ``kernels`` what `phasor.kernels.available` said. ``device`` is what there is
    to say of a GPU, where one was measured: its name and the rate of a copy; ``bits`` what was compared on it, by name:
    how many calls, what became of them, and what was wrong (`benchmarks/gpu.py`).
    """

    command: str
    date: str
    cpu: str
    cores: int
    threads: int
    rounds: int
    quick: bool
    python: str
    torch: str
    phasor: str
    kernel: str
    kernels: dict[str, str]
    rows: tuple[Timing, ...]
    skipped: dict[str, str]
    device: dict[str, Any] | None = None
    bits: dict[str, Any] | None = None


def write(record: Record, path: Path) -> None:
    """One row per line, so that two files can be compared by eye."""
    data = asdict(record)
    rows = ",\n".join("  " + json.dumps(row) for row in data.pop("rows"))
    head = json.dumps(data, indent=1).removesuffix("\n}")
    write_whole(path, f'{head},\n "rows": [\n{rows}\n ]\n}}\n'.encode())


def read(path: Path) -> Record:
    """The record that `write` wrote; ``ValueError`` for any other file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=keys_once)
        known = {field.name for field in fields(Record)}
        if not isinstance(data, dict) or set(data) | {"device", "bits"} != known:  # a run on a CPU need not have them
            raise ValueError("it has other keys")
        return Record(**data | {"rows": tuple(Timing.from_dict(row) for row in data["rows"])})
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} must be what benchmarks/bench.py --json writes, and is not: {error}") from error


def worst_first(rows: Sequence[Timing]) -> list[Timing]:
    """Those that have a goal, the one farthest beyond it first."""
    return sorted((row for row in rows if row.goal is not None), key=lambda row: -row.beyond)


def line(row: Timing) -> str:
    """One row, with what its ratio should be. The limit is the time of as many bytes at the rate of its unit."""
    spread = f"{row.spread[0]:.2f}..{row.spread[1]:.2f}" if row.spread else ""
    cell = f"{row.case:<20}{row.measured:<21}{row.dtype:<10}{row.layout:<13}{row.us:>7.1f} us"
    limit = f"{'limit' if row.unit == 'copy_' else row.unit} {row.unit_us:.1f} us"
    return f"{cell}  {row.ratio:>6.2f}  {spread:<12}  {row.goal or ''!s:<12}  {limit}"
