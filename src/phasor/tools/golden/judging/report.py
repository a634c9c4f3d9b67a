"""What a comparison found, for people and for programs."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What differs in one kind of layer, first of all in ``tensor``; or, with ``error`` false, what is worth knowing.

    ``cause`` is a word (``"layout"``, ``"base"``, ``"attention_factor"``, …, two joined by ``+``, or ``"unknown"``),
    ``says`` the sentence. ``position``, ``head``, ``channel`` (pair, for tables) are those of the first difference, or
    ``token`` where the positions themselves differ.
    ``explained``, ``unexplained`` and ``right`` name the tensors of this kind that have that cause, another one, or
    no fault.

    >>> found = Finding(kind="attention", layers=(0, 1), tensor="exact.cos", cause="angles", says="float32 angles",
    ...                 error=False)
    >>> print(found.describe())
    attention (2 layers, the first is 0): exact.cos
      no error: float32 angles
    """

    kind: str
    layers: tuple[int, ...]
    tensor: str
    cause: str
    says: str
    error: bool = True
    position: tuple[float, ...] | None = None
    token: int | None = None
    head: int | None = None
    channel: int | None = None
    expected: float | None = None
    got: float | None = None
    ulps: float | None = None
    relative: float | None = None
    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    right: tuple[str, ...] = ()

    def describe(self) -> str:
        """A few lines for people."""
        lines = [f"{self.kind} ({len(self.layers)} layers, the first is {self.layers[0]}): {self.tensor}"]
        if self.error and self.expected is not None:
            where = [f"at position {', '.join(f'{p:.9g}' for p in self.position)}"] if self.position else []
            where += [f"at token {self.token}"] if self.token is not None else []
            where += [f"head {self.head}"] if self.head is not None else []
            where += (
                [f"{'channel' if self.head is not None else 'pair'} {self.channel}"] if self.channel is not None else []
            )
            lines[0] += f" differs first{' ' if where else ''}{', '.join(where)}"
            apart = f"{self.ulps:.3g} ulp, relative {self.relative:.2g}"
            lines.append(f"  expected {self.expected:.9g}, got {self.got:.9g} ({apart})")
        lines.append(f"  {'likely cause' if self.error else 'no error'}: {self.says}")
        for word, names in (
            ("same cause", self.explained[1:]),
            ("other cause", self.unexplained),
            ("right", self.right),
        ):
            if names and self.error:
                lines.append(f"  {word}: {', '.join(names)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """All findings; ``compared`` names the tensors that were looked at, ``missing`` counts the others.

    >>> report = Report(findings=(), compared=("attention.exact.cos",), missing=19)
    >>> report.equal, report.describe()
    (True, 'equal: 1 tensors compared, 19 not given')
    """

    findings: tuple[Finding, ...]
    compared: tuple[str, ...]
    missing: int

    @property
    def equal(self) -> bool:
        """Whether everything given is within tolerance, or right in the other arithmetic."""
        return not any(finding.error for finding in self.findings)

    def describe(self) -> str:
        """All findings for people, and a line that counts."""
        said = [finding.describe() for finding in self.findings]
        word = "equal" if self.equal else "different"
        return "\n".join([*said, f"{word}: {len(self.compared)} tensors compared, {self.missing} not given"])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; numbers that JSON does not have (nan, infinite) are words."""
        findings = [{name: _plain(value) for name, value in vars(f).items()} for f in self.findings]
        return {"equal": self.equal, "compared": list(self.compared), "missing": self.missing, "findings": findings}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
