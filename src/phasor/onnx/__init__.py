"""ONNX: programs written so that they say what they are."""

from .export import export

__all__ = ["export"]
