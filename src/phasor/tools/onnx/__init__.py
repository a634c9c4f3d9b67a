"""ONNX: programs written so that they say what they are, and files checked against a model's config."""

from .check import check
from .export import export
from .report import OnnxReport, Site

__all__ = ["OnnxReport", "Site", "check", "export"]
