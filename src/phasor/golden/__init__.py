"""Golden vectors for rotary code in any language, and what differs when it differs."""

from .check import check
from .report import Finding, Report
from .write import write

__all__ = ["Finding", "Report", "check", "write"]
