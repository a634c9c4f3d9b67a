"""ONNX: programs that say what they are, files checked against a model's config, rotations made one operator each."""

from .tools.onnx import OnnxReport, check, export, fuse

__all__ = ["OnnxReport", "check", "export", "fuse"]
