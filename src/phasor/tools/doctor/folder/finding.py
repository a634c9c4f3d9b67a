"""FolderFault: one thing in a folder that contradicts another, and how to mend it."""

from dataclasses import dataclass

from ..report import Check

NOT_UNDERSTOOD = "config not understood"


@dataclass(frozen=True)
class FolderFault:
    """``what`` is wrong; ``settled``: whether the ``way_out`` is known for certain, and judged on by."""

    place: str
    what: str
    cause: str
    way_out: str
    settled: bool = False

    def check(self) -> Check:
        """As a row of a diagnosis."""
        return Check(
            where=self.place, what="consistency", against="spec", verdict="wrong",
            cause=self.cause, reason=self.what, way_out=self.way_out,
        )  # fmt: skip
