"""ONNX: programs written so that they say what they are, and files checked against a model's config."""

from .tools.onnx import OnnxReport, check, export

__all__ = ["OnnxReport", "check", "export"]
