"""A folder whose config contradicts itself or its weights: what is wrong, and a new folder where it is mended."""

from .examine import Examined, examine
from .finding import NOT_UNDERSTOOD
from .layout import check_layout
from .writing import write

__all__ = ["NOT_UNDERSTOOD", "Examined", "check_layout", "examine", "write"]
