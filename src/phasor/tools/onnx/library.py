"""The libraries of ONNX, which are an extra."""

from importlib import import_module
from typing import Any


def library(*more: str) -> Any:
    """The module ``onnx`` with all that is used of it; ``ValueError`` if it, or one of ``more``, is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.reference
        import onnx.shape_inference

        for name in more:
            import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"ONNX needs {error.name}; install it with: pip install 'phasor[onnx]'") from None
    return onnx
