"""What a rotation costs here, in units of what else the machine can do with the same bytes."""

from .measure import medians, race
from .result import Goal, Record, Timing, read, write
from .run import CASES, named, run

__all__ = ["CASES", "Goal", "Record", "Timing", "medians", "named", "race", "read", "run", "write"]
