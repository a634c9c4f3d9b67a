"""phasor: position encodings for attention, exact at every position."""

# ruff: noqa: E402, F401
from .support import interrupt

interrupt.listen()  # before anything else is imported: torch takes seconds

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import encodings, positions
from .encodings import Rotary, heads
from .encodings import attention as _attention
from .encodings.attention import KVCache, attention
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
from .support import public_modules

if TYPE_CHECKING:
    from . import caches
    from .caches import KeyLedger, admitted_length
    from .models import configs, prefixes, weights
    from .models.configs import ModelRotary, read_config, read_parts, read_rule, register_model, write_config
    from .serving import engines, planner
    from .serving.planner import plan
    from .tools import checkpoints, doctor, golden, inspect, onnx
    from .tools import patch as integrations
    from .tools.doctor import diagnose, repair
    from .tools.fit import fit
    from .tools.patch import patch, unpatch
    from .tools.study import study

# `phasor.attention` is the function; the module of that name is imported from, and must not take its place.
sys.modules[f"{__name__}.attention"] = _attention
public_modules.install()

# What reads configs and patches models is imported when it is first asked for: whoever rotates alone need not wait.
LATER = {
    **dict.fromkeys(
        ("ModelRotary", "read_config", "read_parts", "read_rule", "register_model", "write_config"), "models.configs"
    ),
    **dict.fromkeys(("patch", "unpatch"), "tools.patch"),
    "plan": "serving.planner",
    **dict.fromkeys(("diagnose", "repair"), "tools.doctor"),
    "fit": "tools.fit",
    "study": "tools.study",
    **dict.fromkeys(("KeyLedger", "admitted_length"), "caches"),
}
MODULES = ("caches", "testing")

try:
    __version__ = version("phasor-rope")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0"


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f".{LATER[name]}", __name__), name)
    if name in public_modules.PUBLIC:
        return public_modules.public_module(name)
    if name in MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER, *public_modules.PUBLIC, *MODULES})


__all__ = [
    "KVCache",
    "KeyLedger",
    "Layout",
    "ModelRotary",
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
    "fit",
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
    "register_model",
    "repair",
    "reposition",
    "rotate",
    "scaling",
    "shift",
    "study",
    "temperature",
    "unpatch",
    "unrotate",
    "warm_up",
    "write_config",
]
