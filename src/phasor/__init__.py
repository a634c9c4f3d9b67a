"""phasor: position encodings for attention, exact at every position."""

from importlib.metadata import PackageNotFoundError, version

from . import axes, encodings, heads, matrix, pairs, positions, scaling, temperature
from .apply import apply_rotary, apply_rotary_qk, rotate
from .attention import KVCache, attention
from .configs import ModelRotary, read_config, read_parts, read_rule, write_config
from .integrations import patch, unpatch
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
    "heads",
    "matrix",
    "pairs",
    "patch",
    "positions",
    "read_config",
    "read_parts",
    "read_rule",
    "rotate",
    "scaling",
    "temperature",
    "unpatch",
    "write_config",
]
