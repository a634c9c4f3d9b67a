"""Rotary encoding for the kernels of transformers: ``layers`` for its hook, and phasor's own calls for all else."""

try:
    from phasor import Rotation, apply_rotary, apply_rotary_qk
except ModuleNotFoundError as error:  # a kernel cannot name what it needs beyond torch
    raise ImportError(f"this kernel needs {error.name}; install it with: pip install phasor-rope") from None

from . import layers

__all__ = ["Rotation", "apply_rotary", "apply_rotary_qk", "layers"]
