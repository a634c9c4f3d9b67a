"""A folder whose config contradicts itself or its weights: what is wrong, and a new folder where it is mended."""

from .examine import Examined, examine
from .write import write

__all__ = ["Examined", "examine", "write"]
