"""Keys that move and lengths that grow: ledgers of rotated keys, and the length that a sequence is admitted for."""

from .ledger import Keep, KeyLedger
from .lengths import admitted_length

__all__ = ["Keep", "KeyLedger", "admitted_length"]
