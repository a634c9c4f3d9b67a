"""Is the position encoding of a model right, in the model as it runs, and if not, why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .report import Check, Diagnosis

if TYPE_CHECKING:
    from .checks import diagnose
    from .mended import Mended, RepairReport
    from .mending import repair
    from .text import Ranking, by_text, rank_readings

# Imported when it is first asked for: `phasor.testing.quick_check` needs little of it, at the start of every training.
LATER = {
    "diagnose": "checks",
    "repair": "mending",
    **dict.fromkeys(("Mended", "RepairReport"), "mended"),
    **dict.fromkeys(("Ranking", "by_text", "rank_readings"), "text"),
}


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f".{LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Check", "Diagnosis", "Mended", "Ranking", "RepairReport", "by_text", "diagnose", "rank_readings", "repair"]
