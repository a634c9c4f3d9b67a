"""Traps on the way to a longer context: each with where it is, what it does, and who reported it."""

from dataclasses import dataclass
from typing import Any

from ..engines import Seen


@dataclass(frozen=True)
class Trap:
    """A mistake that runs without an error: its number in `docs/planner.md`, what it does here, and a source."""

    number: int
    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.text} [trap {self.number}; {self.source}]"


def traps(seen: Seen, engine: str = "", flags: Any = "") -> list[Trap]:
    """Those that a config and the flags of an engine show; empty for a clean one."""
    return []
