"""Every key about positions, in every model type: does the model's own code change its tables, and does phasor?

A key that the source of a type mentions is tried alone, the others all at once and bisected where something differs.
phasor must give the tables of the model's own code, or refuse, or say in its row why it gives others.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .changes_at_levels import changes_at
from .changes_of_keys import Change, Config, Level, changed, inside, levels, skeleton
from .walk import default_config, quiet, turning_places

from computed import computed  # isort: skip
from outcomes import Parts, judged, read_and_judged, within  # isort: skip
from phasor import ModelRotary, read_parts  # isort: skip
from phasor.models.rows import ROWS  # isort: skip
from phasor.models.reading.row import Row  # isort: skip

SAME, EFFECT, REFUSED, DISAGREE = "same", "effect", "refused", "DISAGREE"
SILENT = (DISAGREE, "CRASH", "SLOW")
# What is read beside the tables.
WORDS = ("notes", "max_position", "layer_types", "parts", "temperatures", "softmax_factor")


@dataclass
class Found:
    """What the keys of one model type came to; ``reads``: those that change tables, in both alike."""

    model_type: str
    counts: Counter[str] = field(default_factory=Counter)
    reads: set[str] = field(default_factory=set)
    silent: list[str] = field(default_factory=list)
    not_compared: str = ""

    def add(self, level: Level, change: Change, kind: str, why: str = "") -> None:
        self.counts[kind] += 1
        if kind == EFFECT:
            self.reads |= {".".join((*level.path, name)) for name in change.called}
        if kind in SILENT:
            self.silent.append(f"{level} {change}: {kind} {why}".strip())


@dataclass
class Base:
    """A config that is read as transformers reads it, and what phasor reads."""

    data: Config
    parts: Parts

    @classmethod
    def of(cls, data: Config) -> "Base | None":
        """None for a config that one of both refuses, or that they read differently."""
        parts, found = read_and_judged(data)
        return cls(data, parts) if found.kind == "EQUAL" and isinstance(parts, dict) else None

    def inert(self, data: Config) -> bool:
        """Whether transformers still computes from ``data`` what phasor reads in this config."""
        try:
            return judged(self.data, self.parts, within(5, computed, data)).kind == "EQUAL"
        except Exception:
            return False

    def read(self, data: Config) -> str:
        """Whether phasor reads ``data`` as this config, refuses it, or reads something else."""
        try:
            return self.kind(read_parts(data))
        except ValueError:
            return REFUSED

    def kind(self, now: Parts) -> str:
        """Whether these are the parts of this config, or one is refused, or one is another."""
        kinds = {_kind(self.parts.get(path), found) for path, found in now.items()}
        return next(kind for kind in (EFFECT, REFUSED, SAME) if kind in kinds)


def _kind(before: ModelRotary | str | None, after: ModelRotary | str) -> str:
    if isinstance(after, str):
        return REFUSED if after.startswith("not read") and after != before else _same(isinstance(before, str))
    return _same(isinstance(before, ModelRotary) and _bare(before) == _bare(after))


def _same(same: bool) -> str:
    return SAME if same else EFFECT


def _bare(model: ModelRotary) -> dict[str, Any]:
    """What is said about the tables."""
    return {f.name: getattr(model, f.name) for f in fields(model) if f.compare and f.name not in WORDS}


def base_of(model_type: str) -> Base | None:
    """The barest config of a type that both read alike; None if there is none."""
    full = json.loads(json.dumps(default_config(model_type).to_dict(), default=str))
    with quiet():
        turning = [place.path for place in turning_places(model_type)]
        return Base.of(skeleton(full, turning)) or Base.of(full)


def sweep(model_type: str, folder: Path | None, values: tuple[int, ...] = (0, 1)) -> Found:
    """All changes of one model type; ``values``: the numbers of the values that are tried."""
    found = Found(model_type)
    with quiet():
        if (base := base_of(model_type)) is None:
            found.not_compared = "no config of it is compared with the model's own code"
            return found
        for level in levels(model_type, turning_places(model_type), base.data):
            for number in values[:1] if level.path else values:  # a part has a type of its own
                for alone, change in changes_at(level, base.data, number, folder):
                    (_one if alone else _all)(base, level, change, found)
    return found


def _one(base: Base, level: Level, change: Change, found: Found) -> None:
    data = changed(base.data, level, change)
    parts, (kind, why, part) = read_and_judged(data)
    if kind == "EQUAL" and isinstance(parts, dict):
        kind = base.kind(parts)
    if kind == DISAGREE and _argued(data, part, why):
        kind = "argued"
    found.add(level, change, kind if kind in SILENT else kind.lower(), f"{part} {why}")


def _argued(data: Config, part: str, why: str) -> bool:
    """Whether the row of a part says why it differs from transformers in this."""
    row = ROWS.get(str(inside(data, tuple(part.split(".")) if part else ()).get("model_type")))
    return isinstance(row, Row) and any(words in why for words in row.known_deviations)


def _all(base: Base, level: Level, change: Change, found: Found) -> None:
    """Keys that should do nothing, at once; those that do are tried alone."""

    def data(names: list[str]) -> Config:
        return changed(base.data, level, change.only(names))

    if change.needed:
        start = Base.of(data([]))
        if start is None:
            found.add(level, change.only([]), "not compared")
            return
        base = start
    live = bisected(list(change.keys), lambda names: base.inert(data(names)))
    for name in live:
        _one(base, level, change.only([name]), found)
    rest = [name for name in change.keys if name not in live]
    for name in rest:  # one by one, because a refusal of one would hide the others
        kind = base.read(data([name]))
        kind = DISAGREE if kind == EFFECT else kind
        found.add(level, change.only([name]), kind, "transformers does not read it, and phasor does")


def bisected(names: list[str], fine: Callable[[list[str]], bool]) -> list[str]:
    """Those names with which something is not fine.

    >>> bisected(["a", "b", "c", "d"], lambda some: "c" not in some)
    ['c']
    """
    if not names or fine(names):
        return []
    if len(names) == 1:
        return names
    half = len(names) // 2
    return [*bisected(names[:half], fine), *bisected(names[half:], fine)]
