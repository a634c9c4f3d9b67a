"""phasor: position encodings for attention, exact at every position."""

# ruff: noqa: E402
from .support import interrupt

interrupt.listen()  # before anything else is imported: torch takes seconds

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .support.later import later

# Everything is imported when it is first asked for: whoever converts a checkpoint or reads a config need not wait for
# torch, and whoever rotates need not wait for what reads configs and patches models.
NAMES = {
    "Rotary": ".encodings",
    **dict.fromkeys(("KVCache", "attention"), ".encodings.attention"),
    **dict.fromkeys(("Observation", "observe"), ".eye"),
    **dict.fromkeys(("ModelRotary", "read_config", "read_parts", "register_model", "write_config"), ".models.configs"),
    **dict.fromkeys(
        (
            "apply_qk_norm_rotary", "apply_rotary", "apply_rotary_qk", "apply_rotary_qkv", "reposition", "rotate",
            "shift",
        ),
        ".rotary.apply",
    ),
    "Layout": ".rotary.layout",
    "Rotation": ".rotary.rotation",
    "RotarySpec": ".rotary.spec",
    **dict.fromkeys(("diagnose", "repair"), ".tools.doctor"),
    **dict.fromkeys(("fuse", "inductor"), ".tools.fuse"),
    **dict.fromkeys(("patch", "unpatch"), ".tools.patch"),
}  # fmt: skip
MODULES = (
    "axes", "caches", "checkpoints", "configs", "doctor", "encodings", "facts", "golden", "kernels",
    "matrix", "onnx", "patching", "positions", "scaling", "span_heads", "temperature", "testing", "weights",
)  # fmt: skip

_name, _names = later(__name__, NAMES)

if TYPE_CHECKING:
    __version__: str

    from . import axes as axes
    from . import caches as caches
    from . import checkpoints as checkpoints
    from . import configs as configs
    from . import doctor as doctor
    from . import encodings as encodings
    from . import facts as facts
    from . import golden as golden
    from . import kernels as kernels
    from . import matrix as matrix
    from . import onnx as onnx
    from . import patching as patching
    from . import positions as positions
    from . import scaling as scaling
    from . import span_heads as span_heads
    from . import temperature as temperature
    from . import testing as testing
    from . import weights as weights
    from .encodings import Rotary
    from .encodings.attention import KVCache, attention
    from .eye import Observation, observe
    from .models.configs import ModelRotary, read_config, read_parts, register_model, write_config
    from .rotary.apply import (
        apply_qk_norm_rotary,
        apply_rotary,
        apply_rotary_qk,
        apply_rotary_qkv,
        reposition,
        rotate,
        shift,
    )
    from .rotary.layout import Layout
    from .rotary.rotation import Rotation
    from .rotary.spec import RotarySpec
    from .tools.doctor import diagnose, repair
    from .tools.fuse import fuse, inductor
    from .tools.patch import patch, unpatch
else:  # a checker of types would take any name for one of phasor's

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _version()
        if name in MODULES:
            return import_module(f".{name}", __name__)
        return _name(name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("phasor-rope")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"


def __dir__() -> list[str]:
    return sorted({"__version__", *_names(), *MODULES})


__all__ = [
    "KVCache",
    "Layout",
    "ModelRotary",
    "Observation",
    "Rotary",
    "RotarySpec",
    "Rotation",
    "apply_qk_norm_rotary",
    "apply_rotary",
    "apply_rotary_qk",
    "apply_rotary_qkv",
    "attention",
    "diagnose",
    "fuse",
    "inductor",
    "observe",
    "patch",
    "read_config",
    "read_parts",
    "register_model",
    "repair",
    "reposition",
    "rotate",
    "shift",
    "unpatch",
    "write_config",
]
