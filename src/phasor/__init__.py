"""phasor: position encodings for attention, exact at every position."""

from importlib.metadata import PackageNotFoundError, version

from . import axes, encodings, heads, kernels, matrix, positions, scaling, temperature
from .apply import apply_rotary, apply_rotary_qk, apply_rotary_qkv, rotate
from .attention import KVCache, attention
from .configs import ModelRotary, read_config, read_parts, read_rule, write_config
from .encodings import Rotary
from .integrations import patch, unpatch
from .layout import Layout
from .rotation import Rotation
from .spec import RotarySpec

try:
    __version__ = version("phasor")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0"

__all__ = [
    "KVCache",
    "Layout",
    "ModelRotary",
    "Rotary",
    "Rotation",
    "RotarySpec",
    "apply_rotary",
    "apply_rotary_qk",
    "apply_rotary_qkv",
    "attention",
    "axes",
    "encodings",
    "heads",
    "kernels",
    "matrix",
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
