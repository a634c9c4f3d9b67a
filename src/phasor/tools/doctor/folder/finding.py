"""Finding: one contradiction in a folder, and what became of it."""

from dataclasses import dataclass

from ..report import Check

NOT_UNDERSTOOD = "config not understood"


@dataclass(frozen=True)
class Finding:
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
            path=self.place, what="consistency", against="spec", verdict="fault",
            cause=self.cause, says=self.what, way_out=way_out,
        )  # fmt: skip

    def line(self) -> str:
        fate = f"mended: {self.mended}" if self.mended else f"left as it is: {self.way_out}"
        return f"{self.place}: {self.what}; {fate}"
