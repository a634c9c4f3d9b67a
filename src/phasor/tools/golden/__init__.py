"""Golden vectors for rotary code in any language, and what differs when it differs."""

from .judging import Finding, Report, check
from .writing import write

__all__ = ["Finding", "Report", "check", "write"]
