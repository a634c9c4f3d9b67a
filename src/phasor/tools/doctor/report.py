"""Diagnosis: what the doctor checked in a model, what it found, why, and the way out."""

import math
import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from ..patch.group_rows import as_one, grouped

Verdict = Literal["sound", "fault", "by design", "not checked"]
Against = Literal["spec", "itself", "text"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at, and how it is.

    - ``path``: the module (``""``: the whole model); ``what`` was checked, in words.
    - ``against``: the ``"spec"`` that the config gives, the model ``"itself"``, which must agree with itself, or a
      ``"text"`` on which the weights must be at their best as the config states them.
    - ``verdict``: ``"sound"``, ``"fault"``, ``"by design"`` (it differs, and is meant to) or ``"not checked"``.
    - ``size``: the largest difference, of the values named in ``of``; None where nothing was compared.
    - ``cause``: a few stable words (``"frequencies rounded to bfloat16"``); ``says``: a sentence, for people.
    - ``position``, ``pair``: the first at which it shows, None where there is no such thing.
    - ``way_out``: what to do about it.

    >>> print(Check(what="shift of all positions", against="itself", verdict="sound", size=2e-7, of="logits").line())
    sound: (the model): shift of all positions (logits differ by 2e-07)
    """

    path: str = ""
    what: str
    against: Against
    verdict: Verdict
    size: float | None = None
    of: str = "values"
    cause: str = ""
    says: str = ""
    position: float | None = None
    pair: int | None = None
    way_out: str = ""

    @property
    def checked(self) -> bool:
        return self.verdict != "not checked"

    def line(self) -> str:
        """One line: verdict, place, what, size, where it shows first, why."""
        told = [] if self.size is None else [f"{self.of} differ by {self.size:.2g}"]
        first = [f"position {self.position:.10g}"] if self.position is not None else []
        first += [f"pair {self.pair}"] if self.pair is not None else []
        told += [f"first at {', '.join(first)}"] if first else []
        why = " - ".join(filter(None, (self.cause, self.says)))
        place = f"{self.verdict}: {self.path or '(the model)'}: {self.what}"
        return f"{place}{f' ({told_all})' if (told_all := ', '.join(told)) else ''}{f': {why}' if why else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; a size that JSON does not have (nan, infinite) is a word."""
        return {n: str(v) if isinstance(v, float) and not math.isfinite(v) else v for n, v in vars(self).items()}


@dataclass(frozen=True)
class Diagnosis:
    """Every check of a model; prints the verdict first, then the faults with their way out, then all checks.

    >>> rows = (Check(path="rotary", what="tables", against="spec", verdict="fault", cause="base", says="it is 1e4"),)
    >>> found = Diagnosis("LlamaForCausalLM", rows)
    >>> found.sound, found.exit_code, [row.cause for row in found.faults]
    (False, 1, ['base'])
    >>> found.verdict()
    'LlamaForCausalLM: 1 fault in 1 check: base'
    """

    model: str
    rows: tuple[Check, ...]

    @property
    def faults(self) -> tuple[Check, ...]:
        return tuple(row for row in self.rows if row.verdict == "fault")

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes of the faults, each once, in order."""
        return tuple(dict.fromkeys(row.cause for row in self.faults if row.cause))

    @property
    def sound(self) -> bool:
        """Whether something was checked, and nothing of it is a fault."""
        return not self.faults and any(row.checked for row in self.rows)

    @property
    def exit_code(self) -> int:
        """0 if no check found a fault, else 1."""
        return 1 if self.faults else 0

    def verdict(self) -> str:
        """One line."""
        done = Counter(row.verdict for row in self.rows)
        checked = len(self.rows) - done["not checked"]
        left = f", {done['not checked']} not checked" if done["not checked"] else ""
        design = f", {done['by design']} inconsistent by design" if done["by design"] else ""
        checks = f"{checked} check{'s' * (checked != 1)}{left}"
        if not self.faults:
            return f"{self.model}: {'sound' if checked else 'unknown'}: no fault in {checks}{design}"
        count = f"{len(self.faults)} fault{'s' * (len(self.faults) != 1)}"
        return f"{self.model}: {count} in {checks}{design}: {', '.join(self.causes) or 'unknown cause'}"

    def __str__(self) -> str:
        lines = [self.verdict()]
        for row in merged(self.faults):
            lines += [row.line(), *textwrap.wrap(row.way_out, 116, initial_indent="  ", subsequent_indent="  ")]
        others = [row for row in self.rows if row.verdict != "fault"]
        return "\n".join([*lines, *(row.line() for row in merged(tuple(others)))])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        rows = [row.to_dict() for row in self.rows]
        return {"model": self.model, "sound": self.sound, "verdict": self.verdict(), "checks": rows}


def merged(rows: tuple[Check, ...]) -> list[Check]:
    """Rows of equal layers as one, with the largest difference."""
    return [_largest(group) for group in grouped(rows, size=None)]


def _largest(group: list[Check]) -> Check:
    return as_one(group, size=max((row.size for row in group if row.size is not None), default=None))
