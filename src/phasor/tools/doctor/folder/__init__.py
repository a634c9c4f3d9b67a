"""A folder whose config contradicts itself or its weights: what is wrong."""

from .examine import Examined, examine
from .faults import NOT_UNDERSTOOD
from .layout import check_layout

__all__ = ["NOT_UNDERSTOOD", "Examined", "check_layout", "examine"]
