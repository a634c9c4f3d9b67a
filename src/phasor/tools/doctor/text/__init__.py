"""Which encoding weights were trained with, by what their model makes of a text under each reading."""

from .rank import by_text, rank_readings
from .ranking import Ranking, Row

__all__ = ["Ranking", "Row", "by_text", "rank_readings"]
