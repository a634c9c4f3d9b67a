"""Is the position encoding of a model right, in the model as it runs, and if not, why."""

from typing import TYPE_CHECKING

from ...support.later import later
from .report import Check, Diagnosis

if TYPE_CHECKING:
    from .checks import diagnose
    from .mended import Mended, RepairReport
    from .mending import repair
    from .text import Ranking, by_text, rank_readings

# Imported when it is first asked for: `phasor.testing.quick_check` needs little of it, at the start of every training.
__getattr__, __dir__ = later(
    __name__,
    {
        "diagnose": ".checks",
        "repair": ".mending",
        **dict.fromkeys(("Mended", "RepairReport"), ".mended"),
        **dict.fromkeys(("Ranking", "by_text", "rank_readings"), ".text"),
    },
)

__all__ = ["Check", "Diagnosis", "Mended", "Ranking", "RepairReport", "by_text", "diagnose", "rank_readings", "repair"]
