"""Which encoding weights were trained with, by what their model makes of a text under each reading."""

from .rank import by_text, rank_readings
from .ranking import Ranking, RankingRow

__all__ = ["Ranking", "RankingRow", "by_text", "rank_readings"]
