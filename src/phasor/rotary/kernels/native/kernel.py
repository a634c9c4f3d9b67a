"""The kernel in C: one pass over the bytes of q and k on a CPU, with the bits of `reference`.

Its source is in ``c/``. It is optional: where it could not be built or loaded, the next kernel does its work. Two ways
lead to it. The short one (`apply/short_ways.py`; for patched models, the end of this file) comes before all checks: in
less than two microseconds the extension looks at the tensors itself, outputs included, and declines whatever is not
right or not plain. The long one is that of every kernel, behind the checks that word the errors.
"""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ....support.tracing import watched
from ...rotation import Rotation
from ...spec import RotarySpec
from ..base import CHOSEN, Angles, Kernel, Pair, one_angle, result_dtype, tensors_of, unseen
from ..cache import Cache
from ..norm import Norm
from ..order import Order, format_of
from ..reference import Reference
from . import autograd, extension
from .autograd import MOST_PAIRS, call, change_of, given_to

_native, MISSING = extension.MODULE, extension.MISSING
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_AXES = 7  # of a tensor
MOST_CHANNELS = 8192  # of one mean


class Native(Kernel):
    """Plain tensors in eager mode on a CPU, in one pass."""

    name = "native"

    @property
    def about(self) -> str:  # type: ignore[override]
        if MISSING:
            return f"not here: {MISSING}"
        return (
            f"plain tensors in eager mode on a CPU, in one pass ({_native.use('')}, {torch.get_num_threads()} threads)"
        )

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        if MISSING:
            return MISSING
        if reason := unseen(q, k, *tensors_of(angles)):
            return reason
        if watched():
            return "a mode of torch intercepts operations, and would not see this one"
        if not q.is_cpu:
            return f"it runs on a CPU, and these are on {q.device}"
        return unsuited(q, angles)

    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        tensor_format = format_of(order)
        given, plan = given_to(angles)
        done = call(q, k, given, tensor_format, False, plan, out)
        if done is None and k is not None:  # batches of different shapes, or one of them as below
            y, z = out or (None, None)
            of_q, _ = self.rotate(q, None, angles, order, None if y is None else (y, None))
            of_k, _ = self.rotate(k, None, angles, order, None if z is None else (z, None))
            return of_q, of_k
        if done is None:  # memory that only autograd knows, as that of lazy zeros
            return Reference().rotate(q, k, angles, order, out)
        pair: Pair = done
        return pair

    def why_not_norm(self, q: Tensor, k: Tensor | None, norm: Norm) -> str:
        widths = [w.numel() for w in norm[:2] if w is not None] + [q.shape[-1]]
        if max(widths) > MOST_CHANNELS:
            return f"it takes means of at most {MOST_CHANNELS} channels, got {max(widths)}"
        if any(w is not None and w.dtype == torch.float64 for w in norm[:2]):
            return "it multiplies in float32, and these weights are float64"
        return ""

    def norm_and_rotate(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm, out: Pair | None
    ) -> Pair:
        done = _native.norm_and_rotate(q, k, rotation, format_of(order), False, None, out, norm)
        if done is None:  # batches of different shapes, or rarer ways to hold heads
            return super().norm_and_rotate(q, k, rotation, order, norm, out)
        pair: Pair = done
        return pair

    def rotate_into_cache(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, order: Order, cache: Cache, out: Tensor | None,
        norm: Norm | None = None, v_norm: Norm | None = None,
    ) -> Tensor:  # fmt: skip
        *to, k_scale, v_scale = cache
        heads = q, k, rotation, format_of(order), False, None, None, out, v
        y: Tensor | None = _native.rotate_into_cache(*heads, *to, "NHD", norm, v_norm, k_scale, v_scale)
        if y is None:  # batches of different shapes, or rarer ways to hold heads
            return super().rotate_into_cache(q, k, v, rotation, order, cache, out, norm, v_norm)
        return y


def unsuited(q: Tensor, angles: Angles) -> str:
    """What about these tensors and angles it does not know."""
    if q.dtype not in DTYPES:
        return f"it takes float32 and half precision, got {q.dtype}"
    if q.ndim > MOST_AXES:
        return f"it takes tensors of at most {MOST_AXES} axes, got {q.ndim}"
    if angles.layout.pairs > MOST_PAIRS or angles.layout.blocks > MOST_PAIRS // 4:
        return f"it takes at most {MOST_PAIRS} pairs in {MOST_PAIRS // 4} blocks"
    if reason := one_angle(angles):
        return reason
    if result_dtype(q, angles) != q.dtype:
        return "it keeps the dtype of its input, and this rotation is promoted"
    return ""


def is_open(kernel: str) -> bool:
    """Whether the short way may be tried where ``kernel`` is asked for."""
    return kernel in OPEN and not is_compiling()


def apply(q: Tensor, k: Tensor | None, rotation: Rotation, tensor_format: str, num_heads: int | None, out: Any) -> Any:
    """The short way by tables of cos and sin: the rotated pair, or None where the extension declines."""
    return _native.apply(q, k, rotation, tensor_format, False, num_heads, out, None)


def rotate_by_plan(head: Tensor, positions: Tensor, plan: Any) -> Tensor | None:
    """The short way for one head ``[..., heads, seq, head_dim]`` and a plan that is kept; None where it declines."""
    done = _native.rotate(head, None, positions, "bhsd", False, None, None, None, plan)
    return None if done is None else done[0]


def change(
    k: Tensor, old: RotarySpec, at: Tensor, new: RotarySpec, to: Tensor, tensor_format: str, out: Tensor | None
) -> Any:
    """The short way for keys at ``at`` of one spec, to ``to`` of another."""
    if (plan := change_of(old.key, new.key, to is not at)) is None or (k.requires_grad and torch.is_grad_enabled()):
        return None
    if to is not at:
        to = torch.cat((to, at)) if old.axes.count > 1 else torch.stack((to, at))
    return _native.rotate(k, None, to, tensor_format, False, None, out, None, plan)


if _native is not None:
    MISSING = extension.bind(autograd.learn)
    if MISSING:
        _native = None
# The names under which the short way may be taken.
OPEN = () if _native is None else ("auto", "native") if CHOSEN in ("auto", "native") else ("native",)
