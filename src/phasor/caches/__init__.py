"""Keys that move and lengths that grow: ledgers of rotated keys, and the length that a sequence is admitted for."""

from typing import TYPE_CHECKING

from ..support.later import later
from .ledger import Keep, KeyLedger
from .lengths import admitted_length

if TYPE_CHECKING:
    from .model_cache import LedgerCache, LedgerLayer
    from .static_cache import StaticLedgerCache, StaticLedgerLayer


__getattr__, __dir__ = later(  # which import transformers
    __name__,
    {
        **dict.fromkeys(("LedgerCache", "LedgerLayer"), ".model_cache"),
        **dict.fromkeys(("StaticLedgerCache", "StaticLedgerLayer"), ".static_cache"),
    },
)

__all__ = [
    "Keep", "KeyLedger", "LedgerCache", "LedgerLayer", "StaticLedgerCache", "StaticLedgerLayer", "admitted_length",
]  # fmt: skip
