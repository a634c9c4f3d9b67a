"""What a rotation costs on a GPU, in units of a copy of the same bytes."""

from .cases import CASES
from .clock import CudaClock

__all__ = ["CASES", "CudaClock"]
