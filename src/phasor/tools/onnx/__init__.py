"""ONNX: programs written so that they say what they are, and files checked against a model's config."""

from .check import OnnxReport, Site, check
from .export import export

__all__ = ["OnnxReport", "Site", "check", "export"]
