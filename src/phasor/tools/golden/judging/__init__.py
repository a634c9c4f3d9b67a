"""Judging another implementation: in which arithmetic it is right, where it is not, and by which mistake."""

from .check import check
from .report import Finding, Report

__all__ = ["Finding", "Report", "check"]
