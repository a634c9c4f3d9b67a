"""Golden vectors for rotary code in any language, and what differs when it differs."""

from .tools.golden import GoldenReport, check, write

__all__ = ["GoldenReport", "check", "write"]
