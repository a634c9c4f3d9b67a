"""FolderFault: one thing in a folder that contradicts another, and what became of it."""

from dataclasses import dataclass

from ..report import Check

NOT_UNDERSTOOD = "config not understood"


@dataclass(frozen=True)
class FolderFault:
    """``what`` is wrong; ``mended``: what the new folder says, empty where that cannot be known: then ``way_out``."""

    place: str
    what: str
    cause: str
    mended: str = ""
    way_out: str = ""

    def check(self) -> Check:
        """As a row of a diagnosis."""
        way_out = f"--repair OUT: {self.mended}" if self.mended else self.way_out
        return Check(
            where=self.place, what="consistency", against="spec", verdict="wrong",
            cause=self.cause, reason=self.what, way_out=way_out,
        )  # fmt: skip

    def line(self) -> str:
        fate = f"mended: {self.mended}" if self.mended else f"left as it is: {self.way_out}"
        return f"{self.place}: {self.what}; {fate}"
