"""phasor: position encodings for attention, exact at every position."""

from . import axes, positions, scaling
from .apply import apply_rotary, apply_rotary_qk, rotate
from .configs import ModelRotary, read_config
from .rotation import Rotation
from .spec import RotarySpec

__all__ = [
    "ModelRotary",
    "Rotation",
    "RotarySpec",
    "apply_rotary",
    "apply_rotary_qk",
    "axes",
    "positions",
    "read_config",
    "rotate",
    "scaling",
]
