"""The kernel in Triton: one launch for q and k on a GPU, phases formed inside, with the bits of `reference`.

Its source is in ``gpu/``. Triton is imported when the first tensor on a GPU comes; with ``TRITON_INTERPRET=1`` its
interpreter runs the same source on tensors of a CPU, slowly, which is how it is tested where there is no GPU.
"""

import os
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ....support.tracing import watched
from ...layout import Layout
from ...rotation import Rotation
from ...tables import spec_of
from ..base import Angles, Kernel, Pair, float64_tables, into, one_angle, result_dtype, tables_of, tensors_of, unseen
from ..cache import Cache
from ..norm import Norm
from ..order import Order
from .autograd import launched, new, normed, normed_and_learns, rotated

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
        if reason := MISSING or unseen(q, k, *tensors_of(angles)) or one_angle(angles):
            return reason
        if watched():
            return "a mode of torch intercepts operations, and would not see this one"
        return unsuited(q, k, angles) or ("" if q.is_cpu else too_old(q.device))

    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        if not isinstance(angles, Rotation) and not _forms_phases(angles.spec.key, angles.log_scale is not None):
            angles = tables_of(angles)
        if k is not None and order.batch_of(q) != order.batch_of(k):
            y, z = out or (None, None)
            of_q, _ = self.rotate(q, None, angles, order, None if y is None else (y, None))
            of_k, _ = self.rotate(k, None, angles, order, None if z is None else (z, None))
            return of_q, of_k
        if out is None:
            return rotated(q, k, angles, order, False, result_dtype(q, angles))
        from . import launch

        y, z = out
        if angles.layout.permuted or not all(launch.takes_writes(t, order) for t in out if t is not None):
            # written elsewhere first: threads of a program would read what others have written, or signs are lazy
            y, z = new(q, k, angles, order, False, y.dtype)
            return into(out, y, z)
        launched(q, k, y, z, angles, order, False)
        torch.autograd.graph.increment_version([t for t in out if t is not None and not t.is_inference()])
        return out

    def why_not_norm(self, q: Tensor, k: Tensor | None, norm: Norm) -> str:
        return unseen(*norm[:2])

    def norm_and_rotate(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm, out: Pair | None
    ) -> Pair:
        """In one launch, and one back; in steps where the norm comes after, or goes across heads."""
        alike = k is None or order.batch_of(q) == order.batch_of(k)
        given = [t for t in (q, k, norm.q_weight, norm.k_weight) if t is not None]
        learns = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        in_half = learns and rotation.cos.dtype.itemsize == 2  # its way back is in float32
        if in_half or norm.after or norm.across_heads or rotation.promoted or not alike or out is not None:
            return super().norm_and_rotate(q, k, rotation, order, norm, out)
        return (normed_and_learns if learns else normed)(q, k, rotation, order, norm)

    def rotate_into_cache(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, order: Order, cache: Cache, out: Tensor | None,
        norm: Norm | None = None, v_norm: Norm | None = None,
    ) -> Tensor:  # fmt: skip
        """In one launch; in steps where q and k have batches of different shapes, or the result is read again."""
        from . import launch
        from .cache_write import rotate_into_cache

        again = out is not None and (rotation.layout.permuted or not launch.takes_writes(out, order))
        lazy = cache.k.is_neg() or cache.v.is_neg()
        if again or lazy or unseen(v, *cache) or order.batch_of(q) != order.batch_of(k):
            return super().rotate_into_cache(q, k, v, rotation, order, cache, out, norm, v_norm)
        dtype = result_dtype(q, rotation)
        y = torch.empty_like(q, dtype=dtype, memory_format=torch.contiguous_format) if out is None else out
        once = norm is not None and norm.rounding == "once"
        rounded = not once and torch.promote_types(q.dtype, rotation.cos.dtype).itemsize == 2
        rotate_into_cache(q, k, v, y, rotation, order, cache, rounded, norm, v_norm)
        if out is not None and not out.is_inference():
            torch.autograd.graph.increment_version([out])
        return y


def unsuited(q: Tensor, k: Tensor | None, angles: Angles) -> str:
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


def sizes_of(layout: Layout, of_q: int, of_k: int, device: torch.device) -> list[tuple[int, int]]:
    """Sequences and tokens of each that together have all kinds of programs; one token where it does not run."""
    if MISSING or (device.type != "cuda" and not (INTERPRETED and device.type == "cpu")):
        return [(1, 1)]
    from . import launch

    _, tile_rows = launch.about(layout, launch.TILE)
    least = launch.least_rows(of_q, of_k, tile_rows, launch.enough_for(device))
    return [(batch, max(batch, -(-rows // batch))) for rows in least for batch in (1, 2)]


@lru_cache(maxsize=64)
def too_old(device: torch.device) -> str:
    """Why a GPU cannot run it."""
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
        capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
        return f"it is compiled for compute capability 8.0 and newer, and {device} has {capability}"
    return ""


@lru_cache(maxsize=512)
def _forms_phases(key: str, scaled: bool) -> bool:
    spec = spec_of(key)
    return spec.angles == "exact" and spec.coordinates == "integer" and not (scaled or spec.learned)
