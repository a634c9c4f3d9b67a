"""The ways before all checks: the C extension, which looks at the tensors itself, then a launch on a GPU that is kept.

Each function gives None where the long way must look, whose checks word the errors. ``kernel`` is what was asked for.
"""

from typing import Any

from torch import Tensor
from torch.compiler import is_compiling

from ..kernels import Norm, Pair
from ..kernels.native import kernel as native
from ..kernels.native.autograd import plan_of
from ..kernels.triton import plans
from ..rotation import Rotation
from ..spec import RotarySpec


def by_tables(
    kernel: str, q: Tensor, k: Tensor | None, rotation: Rotation, tensor_format: str, num_heads: int | None, out: Any,
    k_rotation: Rotation | None = None,
) -> Pair | None:  # fmt: skip
    """q and k rotated by tables of cos and sin."""
    done = None
    if kernel in native.OPEN and not is_compiling():
        done = native._native.apply(q, k, rotation, tensor_format, False, num_heads, out, k_rotation)
    if done is None and num_heads is None and k_rotation is None and plans.is_open(kernel):
        done = plans.apply(q, k, rotation, tensor_format, out)
    return done


def by_phases(
    kernel: str, q: Tensor, k: Tensor | None, positions: Tensor, spec: RotarySpec, seq_len: Any, tensor_format: str,
    num_heads: int | None, out: Any, k_positions: Tensor | None,
) -> Pair | None:  # fmt: skip
    """By positions."""
    done = None
    if kernel in native.OPEN and not is_compiling() and type(spec) is RotarySpec:
        plan = plan_of(spec.key, seq_len) if seq_len is None or type(seq_len) is int else None
        if plan is not None:
            done = native._native.rotate(q, k, positions, tensor_format, False, num_heads, out, k_positions, plan)
    if done is None and num_heads is None and k_positions is None and seq_len is None and plans.is_open(kernel):
        done = plans.rotate(q, k, positions, spec, tensor_format, out)
    return done


def after_a_norm(
    kernel: str, q: Tensor, k: Tensor | None, rotation: Rotation, norm: Norm, tensor_format: str, num_heads: int | None,
    out: Any,
) -> Pair | None:  # fmt: skip
    """By tables, after a norm or before it."""
    done = None
    if kernel in native.OPEN and not is_compiling():
        done = native._native.norm_and_rotate(q, k, rotation, tensor_format, False, num_heads, out, norm)
    if done is None and num_heads is None and out is None and plans.is_open(kernel):
        done = plans.apply(q, k, rotation, tensor_format, None, norm)
    return done


def packed(kernel: str, qkv: Tensor, rotation: Rotation, num_heads: int | None, out: Tensor | None) -> Tensor | None:
    """Queries, keys and values in one tensor."""
    if kernel not in native.OPEN or is_compiling():
        return None
    rotated: Tensor | None = native._native.apply_packed(qkv, rotation, num_heads, out)
    return rotated


def into_cache(
    kernel: str, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, k_cache: Tensor, v_cache: Tensor, slots: Tensor,
    kv_layout: str, tensor_format: str, out: Tensor | None, norm: Norm | None, k_scale: Any, v_scale: Any,
) -> Tensor | None:  # fmt: skip
    """q rotated; k and v in their caches, at their slots. Where it is None, nothing was written."""
    if kernel not in native.OPEN or is_compiling():
        return None
    done: Tensor | None = native._native.rotate_into_cache(
        q, k, rotation, tensor_format, False, None, None, out, v, k_cache, v_cache, slots, kv_layout, norm, None,
        k_scale, v_scale,
    )  # fmt: skip
    return done
