"""phasor: position encodings for attention, exact at every position."""

from importlib.metadata import PackageNotFoundError, version

from . import axes, encodings, matrix, pairs, positions, scaling
from .apply import apply_rotary, apply_rotary_qk, rotate
from .attention import KVCache, attention
from .configs import ModelRotary, read_config
from .rotation import Rotation
from .spec import RotarySpec

try:
    __version__ = version("phasor")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0"

__all__ = [
    "KVCache",
    "ModelRotary",
    "Rotation",
    "RotarySpec",
    "apply_rotary",
    "apply_rotary_qk",
    "attention",
    "axes",
    "encodings",
    "matrix",
    "pairs",
    "positions",
    "read_config",
    "rotate",
    "scaling",
]
