"""Is the position encoding of a model right, in the model as it runs, and if not, why."""

from .diagnose import diagnose
from .mended import Mended, RepairReport
from .repair import repair
from .report import Check, Diagnosis
from .text import Ranking, by_text, rank_readings

__all__ = ["Check", "Diagnosis", "Mended", "Ranking", "RepairReport", "by_text", "diagnose", "rank_readings", "repair"]
