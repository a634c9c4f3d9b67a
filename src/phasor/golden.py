"""Golden vectors for rotary code in any language, and what differs when it differs."""

from .tools.golden import GoldenReport, check, write, write_pack

__all__ = ["GoldenReport", "check", "write", "write_pack"]
