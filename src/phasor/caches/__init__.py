"""Rotated keys that are kept: written into a cache, moved, and rotated for a length that a sequence is admitted for."""

from typing import TYPE_CHECKING

from ..rotary.apply import (
    apply_rotary_to_cache,
    apply_rotary_to_latent_cache,
    cache_slots,
    change_spec,
    page_slots,
    unrotate,
)
from ..support.later import later
from .ledger import Keep, KeyLedger
from .lengths import admitted_length

if TYPE_CHECKING:
    from .model_cache import LedgerCache, LedgerLayer


# which imports transformers
__getattr__, __dir__ = later(__name__, dict.fromkeys(("LedgerCache", "LedgerLayer"), ".model_cache"))

__all__ = [
    "Keep", "KeyLedger", "LedgerCache", "LedgerLayer", "admitted_length",
    "apply_rotary_to_cache", "apply_rotary_to_latent_cache", "cache_slots", "change_spec", "page_slots", "unrotate",
]  # fmt: skip
