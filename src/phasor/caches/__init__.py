"""Keys that move and lengths that grow: ledgers of rotated keys, and the length that a sequence is admitted for."""

from typing import TYPE_CHECKING, Any

from .ledger import Keep, KeyLedger
from .lengths import admitted_length

if TYPE_CHECKING:
    from .model_cache import LedgerCache, LedgerLayer
    from .static_cache import StaticLedgerCache, StaticLedgerLayer


def __getattr__(name: str) -> Any:
    if name in ("LedgerCache", "LedgerLayer"):  # which import transformers
        from . import model_cache

        return getattr(model_cache, name)
    if name in ("StaticLedgerCache", "StaticLedgerLayer"):
        from . import static_cache

        return getattr(static_cache, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Keep", "KeyLedger", "LedgerCache", "LedgerLayer", "StaticLedgerCache", "StaticLedgerLayer", "admitted_length",
]  # fmt: skip
