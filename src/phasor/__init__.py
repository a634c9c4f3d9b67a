"""phasor: position encodings for attention, exact at every position."""

# ruff: noqa: E402
from . import interrupt

interrupt.listen()  # before anything else is imported: torch takes seconds

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import axes, encodings, heads, kernels, matrix, positions, scaling, temperature
from .apply import (
    apply_qk_norm_rotary,
    apply_rotary,
    apply_rotary_qk,
    apply_rotary_qkv,
    apply_rotary_to_cache,
    cache_slots,
    page_slots,
    rotate,
)
from .attention import KVCache, attention
from .encodings import Rotary
from .layout import Layout
from .rotation import Rotation
from .spec import RotarySpec

if TYPE_CHECKING:
    from .configs import ModelRotary, read_config, read_parts, read_rule, write_config
    from .doctor.checks import diagnose
    from .doctor.mending import repair
    from .integrations.patch import patch, unpatch
    from .planner import plan

# What reads configs and patches models is imported when it is first asked for: whoever rotates alone need not wait.
LATER = {
    **dict.fromkeys(("ModelRotary", "read_config", "read_parts", "read_rule", "write_config"), "configs"),
    **dict.fromkeys(("patch", "unpatch"), "integrations"),
    "plan": "planner",
    **dict.fromkeys(("diagnose", "repair"), "doctor"),
}

try:
    __version__ = version("phasor")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0"


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f".{LATER[name]}", __name__), name)
    if name in ("configs", "doctor", "engines", "integrations", "onnx", "planner", "prefixes", "testing", "weights"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})


__all__ = [
    "KVCache",
    "Layout",
    "ModelRotary",
    "Rotary",
    "Rotation",
    "RotarySpec",
    "apply_qk_norm_rotary",
    "apply_rotary",
    "apply_rotary_qk",
    "apply_rotary_qkv",
    "apply_rotary_to_cache",
    "attention",
    "axes",
    "cache_slots",
    "diagnose",
    "encodings",
    "heads",
    "kernels",
    "matrix",
    "page_slots",
    "patch",
    "plan",
    "positions",
    "read_config",
    "read_parts",
    "read_rule",
    "repair",
    "rotate",
    "scaling",
    "temperature",
    "unpatch",
    "write_config",
]
