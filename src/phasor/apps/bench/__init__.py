"""phasor bench: what a rotation costs here, in units of what else the machine can do with the same bytes."""

from .cases import CASES, named
from .race import medians, race
from .result import Goal, Record, Row, read, write
from .run import run

__all__ = ["CASES", "Goal", "Record", "Row", "medians", "named", "race", "read", "run", "write"]
