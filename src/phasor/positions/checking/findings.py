"""What is wrong with the positions of a batch: one finding for each mistake, with its place and the way out."""

from dataclasses import asdict, dataclass
from typing import Any

SHOWN = 8  # of one kind, in print


@dataclass(frozen=True)
class Finding:
    """One mistake. ``row`` and ``token`` say where it begins (``None``: everywhere), ``kind`` what it is in few words.

    >>> print(Finding("not restarted", 0, 3, "its document starts here, and goes on from the one before", "packed()"))
    row 0, token 3: not restarted: its document starts here, and goes on from the one before; packed()
    """

    kind: str
    row: int | None
    token: int | None
    why: str
    out: str

    def __str__(self) -> str:
        place = [f"{name} {at}" for name, at in (("row", self.row), ("token", self.token)) if at is not None]
        return ": ".join([*([", ".join(place)] if place else []), self.kind, f"{self.why}; {self.out}"])


class Findings(tuple[Finding, ...]):
    """The findings of `check`, in the order of the rows; empty, and false, where nothing is wrong.

    >>> print(Findings())
    nothing is wrong with these positions
    """

    def __str__(self) -> str:
        if not self:
            return "nothing is wrong with these positions"
        lines = []
        for kind in dict.fromkeys(finding.kind for finding in self):
            same = [finding for finding in self if finding.kind == kind]
            lines += [str(finding) for finding in same[:SHOWN]]
            if more := len(same) - SHOWN:
                lines += [f"... and {more} more of this kind"] * (more > 0)
        return "\n".join(lines)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Each kind once, in order."""
        return tuple(dict.fromkeys(finding.kind for finding in self))

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data, one dictionary for each finding."""
        return [asdict(finding) for finding in self]

    def raise_if_any(self) -> None:
        """Raise ``ValueError`` that says them all, if there are any: for a collator or the start of a training run."""
        if self:
            raise ValueError(f"position_ids must be right for their batch, got:\n{self}")
