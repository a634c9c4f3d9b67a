"""ONNX: programs that say what they are, files checked against a model's config, rotations made one operator each."""

from .check import OnnxReport, Site, check
from .export import export
from .fuse import OnnxFuseReport, fuse

__all__ = ["OnnxFuseReport", "OnnxReport", "Site", "check", "export", "fuse"]
