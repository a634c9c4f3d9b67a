"""What a comparison found, in one shape for every tool that judges: `Difference`, `Finding`, `Report`.

A verdict is one of three words: ``"right"`` of what was observed and agrees, ``"wrong"`` of what was observed and does
not, ``"not shown"`` of what was not observed, or not well enough to tell.
"""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from .number_text import runs

Verdict = Literal["wrong", "right", "not shown"]
VERDICTS: tuple[Verdict, ...] = ("wrong", "not shown", "right")  # in the order in which a person wants to read them
ROUNDINGS = 4  # steps of the number format by which two ways of writing one formula may differ
WIDTH = 116  # of the lines that say a way out


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far two results are apart, and where that shows first.

    ``size`` is the largest absolute difference of the values named in ``of``, ``steps`` the same in steps of their
    number format (ulp). ``position``, ``token``, ``head``, ``pair``, ``channel`` and ``row`` are those of the first
    element that differs, ``expected`` and ``got`` its two values; None where there is no such thing.

    >>> print(Difference(size=0.25, of="logits", position=7, pair=3))
    logits differ by 0.25, first at position 7, pair 3
    """

    size: float | None = None
    of: str = "values"
    steps: float | None = None
    row: int | None = None
    position: float | tuple[float, ...] | None = None
    token: int | None = None
    head: int | None = None
    pair: int | None = None
    channel: int | None = None
    expected: float | None = None
    got: float | None = None

    @property
    def exact(self) -> bool:
        """Whether the two are equal to the bit."""
        return self.size == 0

    @property
    def close(self) -> bool:
        """Whether both are results of one formula, perhaps with other roundings: at most `ROUNDINGS` steps apart."""
        return self.steps is not None and self.steps <= ROUNDINGS

    def where(self) -> str:
        """``"position 7, head 2"``; empty if it is not known."""
        names = ("row", "position", "token", "head", "pair", "channel")
        return ", ".join(f"{name} {_number(value)}" for name in names if (value := getattr(self, name)) is not None)

    def __str__(self) -> str:
        size = "" if self.size is None else f"{self.of} differ by {self.size:.2g}"
        first = f"first at {self.where()}" if self.where() else ""
        values = "" if self.expected is None else f"expected {self.expected:.9g}, got {self.got:.9g}"
        return ", ".join(filter(None, (size, first, values)))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at, and the verdict on it.

    - ``where``: the module, layer, tensor, key or node (``""``: the whole); ``what`` was looked at, in words.
    - ``verdict``: ``"wrong"``, ``"right"`` or ``"not shown"``.
    - ``cause``: a few stable words (``"frequencies rounded to bfloat16"``); ``reason``: the sentence, for people.
    - ``way_out``: what to do about it. ``source``: what the verdict rests on.

    >>> print(Finding(where="rotary_emb", what="tables", verdict="wrong", cause="base", reason="it is 1e4, not 5e5"))
    wrong: rotary_emb: tables: base - it is 1e4, not 5e5
    """

    where: str = ""
    what: str
    verdict: Verdict
    cause: str = ""
    reason: str = ""
    way_out: str = ""
    source: str = ""
    difference: Difference | None = None

    def place(self) -> str:
        return ": ".join(filter(None, (self.where, self.what)))

    def __str__(self) -> str:
        """One line: verdict, place, difference, why."""
        difference = f" ({self.difference})" if self.difference is not None and str(self.difference) else ""
        why = " - ".join(filter(None, (self.cause, self.reason)))
        return f"{self.verdict}: {self.place()}{difference}{f': {why}' if why else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; a number that JSON does not have (nan, infinite) is a word."""
        return plain(self)


F = TypeVar("F", bound=Finding)


@dataclass(frozen=True)
class Report(Generic[F]):
    """All findings about one ``subject``; prints the verdict first, then what is wrong with its way out, then the rest.

    >>> wrong = Finding(where="rotary_emb", what="tables", verdict="wrong", cause="base", way_out="set rope_theta")
    >>> report = Report("LlamaForCausalLM", (wrong, Finding(what="cached = full", verdict="right")))
    >>> report.verdict, report.exit_code
    ('wrong', 1)
    >>> print(report)
    LlamaForCausalLM: wrong: 1 of 2 checks: base
    wrong: rotary_emb: tables: base
      set rope_theta
    right: cached = full
    """

    subject: str
    findings: tuple[F, ...]
    unit: ClassVar[str] = "check"  # what one finding is about

    @property
    def wrong(self) -> tuple[F, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "wrong")

    @property
    def verdict(self) -> Verdict:
        """Wrong if anything is; right if something was seen and nothing is wrong; else not shown."""
        seen = {finding.verdict for finding in self.findings}
        return "wrong" if "wrong" in seen else "right" if "right" in seen else "not shown"

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes of what is wrong, each once, in order."""
        return tuple(dict.fromkeys(finding.cause for finding in self.wrong if finding.cause))

    @property
    def exit_code(self) -> int:
        """1 if anything is wrong, else 0."""
        return 1 if self.wrong else 0

    def summary(self) -> str:
        """One line."""
        count = Counter(finding.verdict for finding in self.findings)
        total = f"{len(self.findings)} {self.unit}{'s' * (len(self.findings) != 1)}"
        missing = f", {count['not shown']} not shown" if count["not shown"] and self.verdict != "not shown" else ""
        if self.verdict == "wrong":
            summary = f"{count['wrong']} of {total}{missing}: {', '.join(self.causes) or 'unknown cause'}"
        else:
            summary = f"{total}{missing}"
        return f"{self.subject}: {self.verdict}: {summary}"

    def __str__(self) -> str:
        lines = [self.summary()]
        for finding in ordered(merged(self.findings)):
            lines.append(str(finding))
            if finding.verdict == "wrong" and finding.way_out:
                lines += textwrap.wrap(finding.way_out, WIDTH, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        findings = [finding.to_dict() for finding in self.findings]
        return {"subject": self.subject, "verdict": self.verdict, "summary": self.summary(), "findings": findings}


def ordered(findings: Iterable[F]) -> list[F]:
    """What is wrong first, then what is not shown, then what is right."""
    return sorted(findings, key=lambda finding: VERDICTS.index(finding.verdict))


def merged(findings: Sequence[F]) -> list[F]:
    """Findings of equal layers as one, ``layers.0-3.attn``, with the largest difference of them."""
    groups: dict[Any, list[F]] = {}
    for finding in findings:
        apart = None if finding.difference is None else replace(finding.difference, size=None, steps=None)
        groups.setdefault(replace(finding, where=any_layer(finding.where), difference=apart), []).append(finding)
    return [_as_one(group) for group in groups.values()]


def _as_one(group: list[F]) -> F:
    differences = [finding.difference for finding in group if finding.difference is not None]
    largest = max(differences, key=lambda d: -math.inf if d.size is None else d.size, default=None)
    return replace(group[0], where=span([finding.where for finding in group]), difference=largest)


def any_layer(path: str) -> str:
    """The path with its first number left open, alike for all layers."""
    return re.sub(r"\.\d+\.", ".#.", path, count=1)


def span(paths: Sequence[str]) -> str:
    """Paths that differ in one number only, as one.

    >>> span(["layers.0.attn", "layers.1.attn", "layers.4.attn"])
    'layers.0-1,4.attn'
    """
    numbers = [int(match.group(1)) for path in paths if (match := re.search(r"\.(\d+)\.", path))]
    if len(paths) == 1 or not numbers:
        return paths[0]
    layers = ",".join(runs(numbers))
    return re.sub(r"\.\d+\.", f".{layers}.", paths[0], count=1)


def plain(value: Any) -> Any:
    """JSON data of dataclasses, tuples and numbers; what is None or empty in a dataclass stays."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{number:.10g}" for number in (value if isinstance(value, tuple) else (value,)))
