"""ONNX: programs that say what they are, files checked against a model's config, rotations made one operator each."""

from .check import OnnxReport, Site, check
from .export import export
from .fuse import FuseReport, fuse

__all__ = ["FuseReport", "OnnxReport", "Site", "check", "export", "fuse"]
