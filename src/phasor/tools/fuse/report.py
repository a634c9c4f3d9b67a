"""What became of the rotations of a graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...support.findings import Finding, Report

ALREADY = "an operator already"


def why_none(findings: Sequence[Finding], unread: Iterable[str] = ()) -> str:
    """Why nothing is fused, in a clause; ``unread``: what could not be run."""
    if left := [finding.reason for finding in findings if finding.verdict != "right"]:
        return left[0]
    if findings:
        return f"its {len(findings)} rotations are operators already"
    return next(iter(unread), "nothing in it turns")


def outputs_equal(away: float) -> str:
    """``away``: the largest difference of any output, of its largest value."""
    return "all outputs equal " + ("to the bit" if away == 0 else f"within {away:.1g} of the largest value")


@dataclass(frozen=True)
class FuseReport(Report[Finding]):
    """One finding for each rotation: right where an operator stands for it now, not shown where it was left.

    ``fused``: how many operators are new; ``nodes``: before and after; ``outputs``: what was seen of the whole model's;
    ``notes``: what could not be run, which may hide a rotation.
    """

    fused: int
    nodes: tuple[int, ...]
    outputs: str
    notes: tuple[str, ...] = ()
    unit: ClassVar[str] = "rotation"

    def __str__(self) -> str:
        largest = max((f.difference.size or 0.0 for f in self.findings if f.difference is not None), default=0.0)
        how = "equal to the bit" if largest == 0 else f"equal within its own rounding, {largest:.1g} at most"
        lines = [
            f"{self.subject}: {self.fused} of {len(self.findings)} rotations fused, each {how}",
            f"nodes {self.nodes[0]:,} -> {self.nodes[1]:,}{self._tables()}; {self.outputs}",
        ]
        lines += [f"left: {f.place()}: {f.reason}" for f in self.findings if f.verdict != "right"]
        return "\n".join([*lines, *self.notes[:3]])

    def _tables(self) -> str:
        """What is to be said of new tables."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        more = {"fused": self.fused, "nodes": list(self.nodes), "outputs": self.outputs, "notes": list(self.notes)}
        return {**super().to_dict(), **more}
