"""What is wrong with the positions of a batch: one finding for each mistake, with its place and the way out."""

from dataclasses import dataclass
from typing import Any

from ...support.findings import Difference, Finding, Verdict

SHOWN = 8  # of one cause, in print


@dataclass(frozen=True, kw_only=True)
class PositionFinding(Finding):
    """One mistake: ``cause`` says in few words what it is, ``reason`` in a sentence, ``way_out`` what to do.

    >>> print(mistake(0, 3, "not restarted", "its document starts here", "positions.packed()"))
    row 0, token 3: not restarted: its document starts here; positions.packed()
    """

    what: str = "position_ids"
    verdict: Verdict = "wrong"
    difference: Difference

    @property
    def row(self) -> int | None:
        """The row of the batch in which it begins; None: in all."""
        return self.difference.row

    @property
    def token(self) -> int | None:
        """The column at which it begins; None: at all."""
        return self.difference.token

    def __str__(self) -> str:
        open_ = "" if self.verdict == "wrong" else self.verdict
        return ": ".join(filter(None, (self.difference.where(), open_, self.cause, f"{self.reason}; {self.way_out}")))


def mistake(
    row: int | None, token: int | None, cause: str, reason: str, way_out: str, verdict: Verdict = "wrong"
) -> PositionFinding:
    """The finding of a mistake that begins at this row and token (None: everywhere)."""
    place = Difference(row=row, token=token)
    return PositionFinding(cause=cause, reason=reason, way_out=way_out, difference=place, verdict=verdict)


class Findings(tuple[PositionFinding, ...]):
    """The findings of `check`, in the order of the rows: what is wrong, and what is not shown to be right.

    Empty, and false, where there is neither.

    >>> print(Findings())
    nothing is wrong with these positions
    """

    def __str__(self) -> str:
        lines = []
        for cause in self.causes:
            same = [finding for finding in self if finding.cause == cause]
            lines += [str(finding) for finding in same[:SHOWN]]
            if len(same) > SHOWN:
                lines.append(f"... and {len(same) - SHOWN} more of this kind")
        return "\n".join(lines) or "nothing is wrong with these positions"

    @property
    def causes(self) -> tuple[str, ...]:
        """Each cause once, in order."""
        return tuple(dict.fromkeys(finding.cause for finding in self))

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data, one dictionary for each finding."""
        return [finding.to_dict() for finding in self]

    @property
    def wrong(self) -> "Findings":
        """Those that are mistakes, without what is not shown."""
        return Findings(finding for finding in self if finding.verdict == "wrong")

    def raise_if_any(self) -> None:
        """Raise ``ValueError`` that says them all, if any is wrong: for a collator or the start of a training run."""
        if self.wrong:
            raise ValueError(f"position_ids must be right for their batch, got:\n{self}")
