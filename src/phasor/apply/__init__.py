"""Turning queries and keys: checks, orders of axes, outputs, then the kernel."""

from .calls import apply_rotary, apply_rotary_qk, rotate
from .formats import TensorFormat
from .normed import apply_qk_norm_rotary
from .packed import apply_rotary_qkv

__all__ = ["TensorFormat", "apply_qk_norm_rotary", "apply_rotary", "apply_rotary_qk", "apply_rotary_qkv", "rotate"]
