"""The main job on real input: shipped models read, explained, drawn, and put to the test of the relative law."""

from .run import run

__all__ = ["run"]
