"""What a comparison with golden vectors found, for people and for programs."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ...support.findings import Finding, Report, Verdict


@dataclass(frozen=True, kw_only=True)
class TensorFinding(Finding):
    """What is wrong in one kind of layer (``where``), first of all in the tensor ``what``; or, where right, a note.

    ``cause`` is a word (``"layout"``, ``"base"``, ``"attention_factor"``, …, ``"value"`` or ``"unknown"``), ``reason``
    the sentence. ``|`` joins two readings that give the same values, so that it is not shown which it is.
    ``difference`` is about the first wrong value: its place, and how far it is off. ``explained``, ``unexplained`` and
    ``right`` name the tensors that have this cause, another one, or no fault.

    >>> print(TensorFinding(where="attention", layers=(0, 1), what="exact.cos", verdict="right", cause="angles",
    ...                     reason="float32 angles"))
    right: attention (2 layers, the first is 0): exact.cos: angles
      float32 angles
    """

    layers: tuple[int, ...]
    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    right: tuple[str, ...] = ()

    def place(self) -> str:
        """Kind of layer, how many layers are of it, tensor."""
        return f"{self.where} ({len(self.layers)} layers, the first is {self.layers[0]}): {self.what}"

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.place()}: {self.cause}"]
        if (first := self.difference) is not None:
            where = f"first at {first.where()}: " if first.where() else ""
            lines.append(f"{where}expected {first.expected:.9g}, got {first.got:.9g} ({first.steps:.3g} ulp)")
        lines.append(self.reason)
        if self.verdict == "wrong":
            names = {"same cause": self.explained[1:], "other cause": self.unexplained, "right": self.right}
            lines += [f"{word}: {', '.join(tensors)}" for word, tensors in names.items() if tensors]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class GoldenReport(Report[TensorFinding]):
    """All findings; ``compared`` names the tensors that were looked at, ``missing`` counts the others.

    >>> print(GoldenReport("golden vectors", (), compared=("attention.exact.cos",), missing=19))
    golden vectors: right: 1 tensors compared, 19 not given
    """

    compared: tuple[str, ...]
    missing: int
    unit: ClassVar[str] = "tensor"

    @property
    def verdict(self) -> Verdict:
        """Right if everything given is within tolerance, or right in the other arithmetic."""
        return "wrong" if self.wrong else "right"

    def summary(self) -> str:
        causes = f": {', '.join(self.causes)}" if self.causes else ""
        count = f"{len(self.compared)} tensors compared, {self.missing} not given"
        return f"{self.subject}: {self.verdict}: {count}{causes}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**super().to_dict(), "compared": list(self.compared), "missing": self.missing}
