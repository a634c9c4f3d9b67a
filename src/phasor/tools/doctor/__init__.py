"""Is the position encoding of a model right, in the model as it runs, and if not, why."""

from typing import TYPE_CHECKING

from ...support.later import later
from .report import Check, Diagnosis

if TYPE_CHECKING:
    from .examinations import diagnose
    from .mending import Mended, RepairReport, repair
    from .text import Ranking, by_text, rank_readings

# Imported when it is first asked for: `phasor.testing.quick_check` needs little of it, at the start of every training.
__getattr__, __dir__ = later(
    __name__,
    {
        "diagnose": ".examinations",
        **dict.fromkeys(("Mended", "RepairReport", "repair"), ".mending"),
        **dict.fromkeys(("Ranking", "by_text", "rank_readings"), ".text"),
    },
)

__all__ = ["Check", "Diagnosis", "Mended", "Ranking", "RepairReport", "by_text", "diagnose", "rank_readings", "repair"]
