"""Readers of the towers beside a text model: vision, audio, speech, protein and memory attention."""

from .read import INNER, TOWERS, UNREADABLE_TOWERS, Tower, read_tower, tower_of

__all__ = ["INNER", "TOWERS", "UNREADABLE_TOWERS", "Tower", "read_tower", "tower_of"]
