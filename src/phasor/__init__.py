"""phasor: position encodings for attention, exact at every position."""

# ruff: noqa: E402, F401
from .support import interrupt

interrupt.listen()  # before anything else is imported: torch takes seconds

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .support import public_modules
from .support.later import later

if TYPE_CHECKING:
    from . import caches, encodings, positions
    from .caches import KeyLedger, admitted_length
    from .encodings import Rotary, heads
    from .encodings.attention import KVCache, attention
    from .eye import Observation, observe
    from .models import configs, prefixes, weights
    from .models.configs import ModelRotary, read_config, read_parts, read_rule, register_model, write_config
    from .rotary import axes, kernels, matrix, scaling, temperature
    from .rotary.apply import (
        apply_qk_norm_rotary,
        apply_rotary,
        apply_rotary_qk,
        apply_rotary_qkv,
        apply_rotary_to_cache,
        apply_rotary_to_latent_cache,
        cache_slots,
        change_spec,
        page_slots,
        reposition,
        rotate,
        shift,
        unrotate,
        warm_up,
    )
    from .rotary.layout import Layout
    from .rotary.rotation import Rotation
    from .rotary.spec import RotarySpec
    from .tools import checkpoints, doctor, golden, inspect, onnx
    from .tools import patch as integrations
    from .tools.doctor import diagnose, repair
    from .tools.patch import patch, unpatch

public_modules.install()

# Everything is imported when it is first asked for: whoever converts a checkpoint or reads a config need not wait for
# torch, and whoever rotates need not wait for what reads configs and patches models.
NAMES = {
    **dict.fromkeys(("KVCache", "attention"), ".encodings.attention"),
    "Rotary": ".encodings",
    **dict.fromkeys(
        (
            "apply_qk_norm_rotary", "apply_rotary", "apply_rotary_qk", "apply_rotary_qkv", "apply_rotary_to_cache",
            "apply_rotary_to_latent_cache", "cache_slots", "change_spec", "page_slots", "reposition", "rotate", "shift",
            "unrotate", "warm_up",
        ),
        ".rotary.apply",
    ),
    **dict.fromkeys(("Observation", "observe"), ".eye"),
    "Layout": ".rotary.layout",
    "Rotation": ".rotary.rotation",
    "RotarySpec": ".rotary.spec",
    **dict.fromkeys(
        ("ModelRotary", "read_config", "read_parts", "read_rule", "register_model", "write_config"), ".models.configs"
    ),
    **dict.fromkeys(("patch", "unpatch"), ".tools.patch"),
    **dict.fromkeys(("diagnose", "repair"), ".tools.doctor"),
    **dict.fromkeys(("KeyLedger", "admitted_length"), ".caches"),
}  # fmt: skip
MODULES = ("caches", "encodings", "eye", "models", "positions", "rotary", "testing", "tools")

_name, _names = later(__name__, NAMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in public_modules.PUBLIC and name not in NAMES:
        return public_modules.public_module(name)
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
    return sorted({"__version__", *_names(), *public_modules.PUBLIC, *MODULES})


__all__ = [
    "KVCache",
    "KeyLedger",
    "Layout",
    "ModelRotary",
    "Observation",
    "Rotary",
    "Rotation",
    "RotarySpec",
    "admitted_length",
    "apply_qk_norm_rotary",
    "apply_rotary",
    "apply_rotary_qk",
    "apply_rotary_qkv",
    "apply_rotary_to_cache",
    "apply_rotary_to_latent_cache",
    "attention",
    "axes",
    "cache_slots",
    "caches",
    "change_spec",
    "diagnose",
    "encodings",
    "heads",
    "kernels",
    "matrix",
    "observe",
    "page_slots",
    "patch",
    "positions",
    "read_config",
    "read_parts",
    "read_rule",
    "register_model",
    "repair",
    "reposition",
    "rotate",
    "scaling",
    "shift",
    "temperature",
    "unpatch",
    "unrotate",
    "warm_up",
    "write_config",
]
