"""Rotating queries and keys: checks, orders of axes, outputs, then the kernel."""

from .cached import KVLayout, apply_rotary_to_cache
from .calls import apply_rotary, apply_rotary_qk, rotate
from .formats import TensorFormat
from .gpu_warm_up import warm_up
from .latent import apply_rotary_to_latent_cache
from .move import change_spec, reposition, shift, unrotate
from .normed import apply_qk_norm_rotary
from .packed import apply_rotary_qkv
from .slots import cache_slots, page_slots

__all__ = [
    "KVLayout",
    "TensorFormat",
    "apply_qk_norm_rotary",
    "apply_rotary",
    "apply_rotary_qk",
    "apply_rotary_qkv",
    "apply_rotary_to_cache",
    "apply_rotary_to_latent_cache",
    "cache_slots",
    "change_spec",
    "page_slots",
    "reposition",
    "rotate",
    "shift",
    "unrotate",
    "warm_up",
]
