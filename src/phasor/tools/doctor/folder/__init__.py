"""A folder whose config contradicts itself or its weights: what is wrong, and what it must say where that is known."""

from .examine import Examined, examine
from .finding import NOT_UNDERSTOOD
from .layout import check_layout

__all__ = ["NOT_UNDERSTOOD", "Examined", "check_layout", "examine"]
