"""What a rotation costs here, in units of what else the machine can do with the same bytes."""

from .cases import CASES
from .measure import medians, race, ratio
from .result import Goal, Record, Timing, read, write
from .run import run

__all__ = ["CASES", "Goal", "Record", "Timing", "medians", "race", "ratio", "read", "run", "write"]
