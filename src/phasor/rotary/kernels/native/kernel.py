"""The kernel in C: one pass over the bytes of q and k on a CPU, with the bits of `reference`.

Its source is in ``c/``. It is optional: where it could not be built or loaded, the next kernel does its work. Two ways
lead to it. The short one, `apply` and `rotate` here, comes before all checks: in less than a microsecond the extension
looks at the tensors itself, and declines whatever is not a plain tensor in a plain call. The long one is that of every
kernel, behind the checks that word the errors.
"""

import torch
from torch import Tensor

from ....support.tracing import watched
from ...rotation import Rotation
from ...spec import RotarySpec
from ..base import CHOSEN, Angles, Kernel, Pair, float64_tables, one_angle, tensors_of, unseen
from ..cache import Cache
from ..norm import Norm
from ..order import Order, format_of
from ..reference import Reference
from . import autograd, extension
from .autograd import MOST_PAIRS, NEW, call, given_to, plan_of

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
        done = call(q, k, given, tensor_format, False, plan, out or NEW)
        if done is None and k is not None:  # batches of different shapes, or one of them as below
            y, z = out or NEW
            of_q, _ = self.rotate(q, None, angles, order, None if y is None else (y, None))
            of_k, _ = self.rotate(k, None, angles, order, None if z is None else (z, None))
            return of_q, of_k
        if done is None:  # memory that only autograd knows, as that of lazy zeros
            return Reference().rotate(q, k, angles, order, out)
        if out is not None:
            _written(out)
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
        done = _native.norm_and_rotate(q, k, rotation, format_of(order), False, *(out or NEW), norm)
        if done is None:  # batches of different shapes, or rarer ways to hold heads
            return super().norm_and_rotate(q, k, rotation, order, norm, out)
        if out is not None:
            _written(out)
        pair: Pair = done
        return pair

    def rotate_into_cache(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, order: Order, cache: Cache, out: Tensor | None
    ) -> Tensor:
        given = (q, k, rotation, format_of(order), False, out, None, v, *cache)
        y: Tensor | None = _native.rotate_into_cache(*given, "NHD", True)
        if y is None:  # batches of different shapes, or rarer ways to hold heads
            return super().rotate_into_cache(q, k, v, rotation, order, cache, out)
        _written((cache.k, cache.v) if out is None else (cache.k, cache.v, out))
        return y


def _written(out: tuple[Tensor | None, ...]) -> None:
    torch.autograd.graph.increment_version([y for y in out if y is not None and not y.is_inference()])


def unsuited(q: Tensor, angles: Angles) -> str:
    """What about these tensors and angles it does not know."""
    if q.dtype not in DTYPES:
        return f"it multiplies in float32, got {q.dtype}"
    if q.ndim > MOST_AXES:
        return f"it takes tensors of at most {MOST_AXES} axes, got {q.ndim}"
    if angles.layout.pairs > MOST_PAIRS or angles.layout.blocks > MOST_PAIRS // 4:
        return f"it takes at most {MOST_PAIRS} pairs in {MOST_PAIRS // 4} blocks"
    if reason := one_angle(angles):
        return reason
    if reason := float64_tables(angles):
        return reason
    if angles.promoted and q.dtype != torch.float32:
        return "it keeps the dtype of its input, and this rotation is promoted"
    return ""


def apply(q: Tensor, k: Tensor | None, rotation: Rotation, tensor_format: str) -> tuple[Tensor, Tensor | None] | None:
    """Fast path from tables of cos and sin: the rotated pair, or None where the extension declines."""
    if torch.compiler.is_compiling() or not OPEN:
        return None
    pair: tuple[Tensor, Tensor | None] | None = _native.apply(q, k, rotation, tensor_format, False, None, None)
    return pair


def rotate(
    q: Tensor, k: Tensor | None, positions: Tensor, spec: RotarySpec, seq_len: int | None, tensor_format: str
) -> tuple[Tensor, Tensor | None] | None:
    """The short way for phases."""
    if torch.compiler.is_compiling() or not OPEN or type(spec) is not RotarySpec:
        return None
    if (seq_len is not None and type(seq_len) is not int) or (plan := plan_of(spec.key, seq_len)) is None:
        return None
    pair: tuple[Tensor, Tensor | None] | None = _native.rotate(q, k, positions, tensor_format, False, None, None, plan)
    return pair


def norm_and_rotate(q: Tensor, k: Tensor | None, rotation: Rotation, norm: Norm, tensor_format: str) -> Pair | None:
    """The short way for a norm and tables."""
    if torch.compiler.is_compiling() or not OPEN:
        return None
    pair: Pair | None = _native.norm_and_rotate(q, k, rotation, tensor_format, False, None, None, norm)
    return pair


def rotate_into_cache(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, k_cache: Tensor, v_cache: Tensor, slots: Tensor,
    kv_layout: str, tensor_format: str,
) -> Tensor | None:  # fmt: skip
    """Fast path into a cache: q rotated, or None where the extension declines; then nothing was written."""
    if torch.compiler.is_compiling() or not OPEN or not (type(k_cache) is type(v_cache) is Tensor):
        return None
    if not torch.is_inference_mode_enabled() and (k_cache.is_inference() or v_cache.is_inference()):
        return None
    given = (q, k, rotation, tensor_format, False, None, None, v, k_cache, v_cache, slots)
    y: Tensor | None = _native.rotate_into_cache(*given, kv_layout, False)
    if y is not None:
        _written((k_cache, v_cache))
    return y


if _native is not None:
    MISSING = extension.bind(autograd.learn)
    if MISSING:
        _native = None
OPEN = _native is not None and CHOSEN in ("auto", "native")  # the short way
