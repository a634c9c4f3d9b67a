"""What a look into an ONNX file found, for people and for programs."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Site:
    """One rotation of the graph: the node it begins with, what it is made of, its layer if that can be told.

    ``verdict`` is ``"right"``, ``"wrong"`` or ``"not read"``; ``cause`` a word as in `phasor.golden.Finding`, for what
    is wrong; ``says`` the reason of either; ``notes`` what is worth knowing and no error.
    """

    node: str
    words: str
    layer: int | None
    verdict: str
    cause: str = ""
    says: str = ""
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        layer = "" if self.layer is None else f"layer {self.layer}, "
        said = "; ".join(filter(None, (self.says, *self.notes)))
        return f"{self.verdict:<9}{layer}{self.node}: {self.words}" + (f"\n         {said}" if said else "")


@dataclass(frozen=True)
class OnnxReport:
    """``sites`` in the order of the graph; ``expected``: how many the config asks for; ``stray``: nodes that form cos
    or sin and belong to none of them."""

    sites: tuple[Site, ...]
    expected: int
    stray: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every rotation that the config asks for was found, read and is right, and nothing else turns."""
        right = all(site.verdict == "right" for site in self.sites)
        return right and len(self.sites) == self.expected and not self.stray

    def describe(self) -> str:
        lines = [site.describe() for site in self.sites]
        if len(self.sites) != self.expected:
            lines.append(f"the config has {self.expected} rotations, and {len(self.sites)} were found in the graph")
        if self.stray:
            some = ", ".join(self.stray[:3]) + (", …" if len(self.stray) > 3 else "")
            lines.append(f"{len(self.stray)} nodes that form cos or sin belong to no rotation that was found: {some}")
        count = Counter(site.verdict for site in self.sites)
        words = ", ".join(f"{count[word]} {word}" for word in ("right", "wrong", "not read") if count[word])
        return "\n".join(
            [*lines, f"{'right' if self.equal else 'not right'}: {words or 'nothing that turns was found'}"]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        sites = [{**asdict(site), "notes": list(site.notes)} for site in self.sites]
        return {"equal": self.equal, "expected": self.expected, "sites": sites, "stray": list(self.stray)}
