"""Factors on the queries that grow with the position: they keep attention sharp over long contexts."""

from .rotary.temperature import LearnedLog, LogFloor, Power, Temperature

__all__ = ["LearnedLog", "LogFloor", "Power", "Temperature"]
