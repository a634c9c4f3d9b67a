"""Scales of float8 caches: what a stored number is multiplied by when it is read."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...support.checks import number
from ...support.tracing import readable, watched
from ..kernels.cache import FLOAT8

Scale = Tensor | float | None


def read_scale(name: str, scale: Any, cache: Any) -> Tensor | None:
    """A scale as a tensor ``[1]`` or ``[heads]``; None for a cache that needs none, else ``ValueError``."""
    needed = isinstance(cache, Tensor) and cache.dtype == FLOAT8
    if scale is None and needed:
        raise ValueError(
            f"{name} must be given for a cache of {FLOAT8}: what a stored number is multiplied by when it is read "
            "(1.0 if numbers are stored as they are), got None"
        )
    if scale is None:
        return None
    if not needed:
        kind = f"{cache.dtype}" if isinstance(cache, Tensor) else type(cache).__name__
        raise ValueError(f"{name} must be None, except for a cache of {FLOAT8}, got one for {kind}")
    if isinstance(scale, Tensor):
        return scale.reshape(1) if scale.ndim == 0 else scale
    number(name, scale, above=0)
    if not watched():
        return _kept(float(scale), cache.device)
    return torch.full((1,), float(scale), dtype=torch.float32, device=cache.device)  # which may be fake, and not kept


@lru_cache(maxsize=512)
def _kept(scale: float, device: torch.device) -> Tensor:
    """On a device once: to bring it there in every call would make that wait."""
    with torch.inference_mode(False):
        return torch.full((1,), scale, dtype=torch.float32, device=device)


def check_cache_format(name: str, cache: Tensor, dtype: torch.dtype, x: Tensor) -> None:
    """``ValueError`` unless a cache can hold ``x``, written in ``dtype``: in that, or in float8 from float32 down."""
    formats = (dtype,) if torch.float64 in (dtype, x.dtype) else (dtype, FLOAT8)
    if cache.dtype not in formats or cache.device != x.device:
        hint = f"; float8 kept as bytes: {name}.view({FLOAT8})" if cache.dtype == torch.uint8 else ""
        raise ValueError(
            f"{name} must be {' or '.join(map(str, formats))} on {x.device}, as what is written, got {cache.dtype} on "
            f"{cache.device}{hint}"
        )


def check_scale(name: str, scale: Tensor | None, heads: int, x: Tensor) -> None:
    """``ValueError`` unless a scale fits the heads of what is written."""
    if scale is None:
        return
    if scale.dtype != torch.float32 or scale.shape not in ((1,), (heads,)):
        raise ValueError(
            f"{name} must be a number, or a float32 tensor with one or with one for each head [{heads}], "
            f"got {scale.dtype} {tuple(scale.shape)}"
        )
    if scale.device != x.device:
        raise ValueError(f"{name} and what it divides must be on the same device, got {scale.device} and {x.device}")
    if torch.is_grad_enabled() and scale.requires_grad:
        raise ValueError(f"{name} must need no gradient, which a cache cannot keep; use torch.no_grad()")
    if scale.is_cpu and readable(scale) and not bool(((scale > 0) & (scale < float("inf"))).all()):
        raise ValueError(f"{name} must be finite and above 0, got {scale.tolist()}")
