"""Golden vectors for rotary code in any language, and what differs when it differs."""

from .check import check
from .folder import write
from .pack import write_pack
from .report import GoldenReport, TensorFinding

Finding, Report = TensorFinding, GoldenReport  # under the names by which they are known outside

__all__ = ["Finding", "GoldenReport", "Report", "TensorFinding", "check", "write", "write_pack"]
