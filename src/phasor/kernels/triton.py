"""The kernel in Triton: one launch for q and k on a GPU, phases formed inside, with the bits of `reference`.

Its source is in ``gpu/``. Triton is imported when the first tensor on a GPU comes; with ``TRITON_INTERPRET=1`` its
interpreter runs the same source on tensors of a CPU, slowly, which is how it is tested where there is no GPU.
"""

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..rotation import Rotation
from ..tables import spec_of, steps_of
from ..tracing import watched
from .base import (
    Angles,
    Kernel,
    Order,
    Pair,
    float64_tables,
    into,
    is_batched,
    one_angle,
    result_dtype,
    tables_of,
    unseen,
)
from .cache import Cache
from .norm import Norm
from .reference import Reference
from .triton_norm import NormAndTurn

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_PAIRS, MOST_ROWS = 1024, 2**31 - 2**16  # of a head; of tokens in all batches, which it counts in 32 bits
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MISSING = "" if find_spec("triton") else "triton is not installed; pip install triton"


class Triton(Kernel):
    """Plain tensors in eager mode on a GPU, in one launch."""

    name = "triton"

    @property
    def about(self) -> str:  # type: ignore[override]
        missing = MISSING or ("" if INTERPRETED or torch.cuda.is_available() else "torch sees no GPU")
        if missing:
            return f"not here: {missing}"
        return "plain tensors in eager mode on a GPU, in one launch" + (" (interpreted)" if INTERPRETED else "")

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        if q.device.type != "cuda" and not (INTERPRETED and q.is_cpu):
            return f"it runs on a GPU, and these are on {q.device}"
        if reason := MISSING or unseen(q, k) or one_angle(angles):
            return reason
        if watched():
            return "a mode of torch intercepts operations, and would not see this one"
        return _unsuited(q, k, angles) or ("" if q.is_cpu else _too_old(q.device))

    def turn(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        if not isinstance(angles, Rotation) and not _forms_phases(angles.spec.key, angles.log_scale is not None):
            angles = tables_of(angles)
        if k is not None and order.batch_of(q) != order.batch_of(k):
            y, z = out or (None, None)
            of_q, _ = self.turn(q, None, angles, order, None if y is None else (y, None))
            of_k, _ = self.turn(k, None, angles, order, None if z is None else (z, None))
            return of_q, of_k
        if out is None:
            return _turned(q, k, angles, order, False, result_dtype(q, angles))
        from .gpu import launch

        y, z = out
        if angles.layout.permuted or not all(launch.has_one_batch(t, order) for t in out if t is not None):
            # written elsewhere first: threads of a program would read what others have written
            y, z = _new(q, k, angles, order, False, y.dtype)
            return into(out, y, z)
        _launch(q, k, y, z, angles, order, False)
        torch.autograd.graph.increment_version([t for t in out if t is not None and not t.is_inference()])
        return out

    def norm_and_turn(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm, out: Pair | None
    ) -> Pair:
        """In one launch, and one back; in steps where the norm comes after, or goes across heads."""
        alike = k is None or order.batch_of(q) == order.batch_of(k)
        given = [t for t in (q, k, norm.q_weight, norm.k_weight) if t is not None]
        learns = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        in_half = learns and rotation.cos.dtype.itemsize == 2  # its way back is in float32
        if in_half or norm.after or norm.across_heads or rotation.promoted or not alike or out is not None:
            return super().norm_and_turn(q, k, rotation, order, norm, out)
        if not learns:
            return normed(q, k, rotation, order, norm)
        pair: Pair = NormAndTurn.apply(q, k, norm.q_weight, norm.k_weight, rotation, norm, order, normed)
        return pair

    def turn_into_cache(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, order: Order, cache: Cache, out: Tensor | None
    ) -> Tensor:
        """In one launch; in steps where q and k have batches of different shapes, or the result is read again."""
        from .gpu import launch
        from .gpu.cache_write import turn_into_cache

        again = out is not None and (rotation.layout.permuted or not launch.has_one_batch(out, order))
        if again or order.batch_of(q) != order.batch_of(k):
            return super().turn_into_cache(q, k, v, rotation, order, cache, out)
        dtype = result_dtype(q, rotation)
        y = torch.empty_like(q, dtype=dtype, memory_format=torch.contiguous_format) if out is None else out
        rounded = torch.promote_types(q.dtype, rotation.cos.dtype).itemsize == 2
        turn_into_cache(q, k, v, y, rotation, order, cache, rounded)
        if out is not None and not out.is_inference():
            torch.autograd.graph.increment_version([out])
        return y


def normed(q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm) -> Pair:
    """Normalised and turned, in new memory."""
    y, z = (None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
    assert y is not None
    _launch(q, k, y, z, rotation, order, False, norm)
    return y, z


def _unsuited(q: Tensor, k: Tensor | None, angles: Angles) -> str:
    """What about these tensors and angles it does not know."""
    if q.dtype not in DTYPES:
        return f"it multiplies in float32, got {q.dtype}"
    if angles.layout.pairs > MOST_PAIRS:
        return f"it takes at most {MOST_PAIRS} pairs, got {angles.layout.pairs}"
    if reason := float64_tables(angles):
        return reason
    if any(x.numel() // x.shape[-1] >= MOST_ROWS for x in (q, k) if x is not None):
        return f"it takes fewer than {MOST_ROWS:,} heads of tokens"
    return ""


@lru_cache(maxsize=64)
def _too_old(device: torch.device) -> str:
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
        found = ".".join(map(str, torch.cuda.get_device_capability(device)))
        return f"it is compiled for compute capability 8.0 and newer, and {device} has {found}"
    return ""


@lru_cache(maxsize=512)
def _forms_phases(key: str, scaled: bool) -> bool:
    spec = spec_of(key)
    return spec.angles == "exact" and spec.coordinates == "integer" and not (scaled or spec.learned)


@lru_cache(maxsize=512)
def _sense(key: str, seq_len: int | None) -> tuple[bool, float]:
    """Direction and magnitude of a spec at a length."""
    spec = spec_of(key)
    return spec.reverse, spec.attention_factor(seq_len)


def _turned(q: Tensor, k: Tensor | None, angles: Angles, order: Order, transposed: bool, dtype: torch.dtype) -> Pair:
    if torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad)):
        pair: Pair = _Turn.apply(q, k, angles, order, transposed, dtype)
        return pair
    return _new(q, k, angles, order, transposed, dtype)


def _new(q: Tensor, k: Tensor | None, angles: Angles, order: Order, transposed: bool, dtype: torch.dtype) -> Pair:
    y, z = (
        None if x is None else torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format) for x in (q, k)
    )
    assert y is not None
    _launch(q, k, y, z, angles, order, transposed)
    return y, z


def _launch(
    q: Tensor, k: Tensor | None, y: Tensor, z: Tensor | None, angles: Angles, order: Order, transposed: bool,
    norm: Norm | None = None,
) -> None:  # fmt: skip
    from .gpu import launch

    layout, rounded, negate = angles.layout, False, transposed
    if isinstance(angles, Rotation):
        given = launch.of_tables(angles.cos, angles.sin, angles.per_head)
        once = norm is not None and norm.rounding == "once"
        rounded = not once and torch.promote_types(q.dtype, angles.cos.dtype).itemsize == 2
    else:
        reverse, factor = _sense(angles.spec.key, angles.seq_len)
        steps = steps_of(angles.spec, angles.seq_len, False, q.device)
        given, negate = launch.of_positions(angles.positions, steps[0], factor), reverse != transposed
    q, k = launch.in_memory(q, order), None if k is None else launch.in_memory(k, order)
    launch.turn(q, k, y, z, given, layout.transposed() if transposed else layout, order, negate, rounded, norm)


class _Turn(torch.autograd.Function):
    """q and k turned at once. Keeps tables or positions, nothing of q and k; its way back is itself, transposed."""

    @staticmethod
    def forward(q: Tensor, k: Tensor | None, angles: Angles, order: Order, transposed: bool, dtype: torch.dtype) -> Any:
        return _new(q, k, angles, order, transposed, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        q, _, angles, order, transposed, _ = inputs
        ctx.save_for_backward(*((angles.cos, angles.sin) if isinstance(angles, Rotation) else angles.positions))
        ctx.set_materialize_grads(False)
        ctx.rest = angles, order, not transposed, q.dtype
        frozen = [y for y, wanted in zip(output, ctx.needs_input_grad, strict=False) if y is not None and not wanted]
        ctx.mark_non_differentiable(*frozen)

    @staticmethod
    def backward(ctx: Any, of_q: Tensor | None, of_k: Tensor | None) -> Any:  # type: ignore[override]
        assert ctx.saved_tensors  # which refuses tables that were written to since
        wanted = ctx.needs_input_grad
        grads = [g if w else None for g, w in zip((of_q, of_k), wanted, strict=False)]
        given = [g for g in grads if g is not None]
        if not given:
            return (None,) * 6
        back = iter(_back(given[0], given[1] if len(given) == 2 else None, *ctx.rest))
        return *(None if g is None else next(back) for g in grads), None, None, None, None


def _back(q: Tensor, k: Tensor | None, angles: Angles, order: Order, transposed: bool, dtype: torch.dtype) -> Pair:
    if not (unseen(q, k) or watched() or any(is_batched(x) for x in (q, k) if x is not None)):
        return _turned(q, k, angles, order, transposed, dtype)
    # batched gradients, or others that are no plain tensors: the plain expression has rules for them
    rotation = tables_of(angles).transpose() if transposed else tables_of(angles)
    y, z = Reference().turn(q, k, rotation, order, None)
    return y.to(dtype), None if z is None else z.to(dtype)
