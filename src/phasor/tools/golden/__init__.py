"""Golden vectors for rotary code in any language, and what differs when it differs."""

from .check import check
from .folder import write
from .report import GoldenReport, TensorFinding

__all__ = ["GoldenReport", "TensorFinding", "check", "write"]
