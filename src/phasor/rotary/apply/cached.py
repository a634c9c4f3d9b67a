"""apply_rotary_to_cache: queries rotated, keys rotated into a KV cache, and values beside them, in one call.

A norm may come first, and the cache may be float8.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from ...support.checks import one_of
from ...support.tracing import readable
from ..kernels import Cache, Norm, Order, Rounding, choose
from ..kernels.base import result_dtype
from ..kernels.cache import FLOAT8
from ..rotation import Rotation
from . import short_ways
from .formats import TensorFormat, order_of
from .input_checks import check_angles, check_fits, check_pair, check_tensor
from .normed import check_norm, check_weight
from .outputs import check_out, overlap, overlaps_itself
from .scales import Scale, check_cache_format, check_scale, read_scale

KVLayout = Literal["NHD", "HND"]
SHAPES = {"NHD": "[blocks, block_size, kv_heads, {}]", "HND": "[blocks, kv_heads, block_size, {}]"}


def apply_rotary_to_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rotation: Rotation,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    k_scale: Scale = None,
    v_scale: Scale = None,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float | None = None,
    unit_offset: bool = False,
    rounding: Rounding = "once",
    kv_layout: KVLayout = "NHD",
    tensor_format: TensorFormat = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Rotate q and k, after a norm if ``eps`` is given; write k and v into their caches. Returns the rotated q.

    Caches are ``[blocks, block_size, kv_heads, head_dim]`` (``"NHD"``) or ``[blocks, kv_heads, block_size, head_dim]``
    (``"HND"``), of any strides: the pages of vLLM (`reshape_and_cache_flash`) and FlashInfer
    (`append_paged_kv_cache`; of its one tensor, ``kv[:, 0]`` and ``kv[:, 1]``), or contiguous caches, which are one
    block per sequence: ``[batch, max_len, kv_heads, head_dim]`` is ``"NHD"``, ``[batch, kv_heads, max_len, head_dim]``
    is ``"HND"``. They have the dtype of k, or are float8:

    - ``torch.float8_e4m3fn`` holds ``rotated k / k_scale`` and ``v / v_scale``, computed in float32 and rounded once,
      to nearest even; numbers beyond 448 become 448. A scale is above 0: a number, a float32 tensor with one, or one
      for each head ``[kv_heads]``. It is what a stored number is multiplied by when it is read (vLLM's
      ``k_scale``), and 1.0 where numbers are stored as they are. A cache kept as bytes: ``cache.view(...)``.

    ``slot_mapping`` has one integer per token, ``[batch, seq]`` or ``[tokens]`` (``"thd"``): ``block * block_size +
    place in the block`` (`cache_slots`, `page_slots`). A token of slot -1 is written nowhere. v may have channels of
    its own number. ``eps``, the weights, ``unit_offset`` and ``rounding`` are those of `apply_qk_norm_rotary`; without
    ``eps`` there is no norm. The rest as in `apply_rotary_qk`; there are no gradients.

    Raises ``ValueError``, before anything is written, for slots outside the cache, for two tokens on one slot, for
    caches of another dtype, device or shape, or that overlap themselves or anything else, for a float8 cache without a
    scale and a scale without a float8 cache, where a gradient is needed, and for all that `apply_rotary_qk` and
    `apply_qk_norm_rotary` refuse. Values of slots and scales are looked at on a CPU only.

    >>> quarter = Rotation.from_tables(torch.zeros(1, 1), torch.ones(1, 1), form="half")
    >>> x, k_cache, v_cache = torch.tensor([[[1.0, 0.0]]]), torch.zeros(1, 3, 1, 2), torch.zeros(1, 3, 1, 2)
    >>> _ = apply_rotary_to_cache(x, x, x, quarter, k_cache, v_cache, torch.tensor([2]), tensor_format="thd")
    >>> k_cache[0, :, 0].tolist(), v_cache[0, :, 0].tolist()
    ([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    """
    norm = None if eps is None else Norm(q_weight, k_weight, eps, unit_offset, rounding=rounding)
    if norm is not None or (q_weight is None and k_weight is None):
        done = short_ways.into_cache(
            kernel, q, k, v, rotation, k_cache, v_cache, slot_mapping, kv_layout, tensor_format, out, norm,
            k_scale, v_scale,
        )  # fmt: skip
        if done is not None:
            return done
    check_norm(norm, q_weight=q_weight, k_weight=k_weight)
    one_of("kv_layout", kv_layout, ("NHD", "HND"))
    scales = read_scale("k_scale", k_scale, k_cache), read_scale("v_scale", v_scale, v_cache)
    cache = Cache(k_cache, v_cache, slot_mapping, *scales)
    return into_cache(q, k, v, rotation, cache, norm, None, kv_layout, tensor_format, kernel, out)


def into_cache(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, cache: Cache, norm: Norm | None, v_norm: Norm | None,
    kv_layout: KVLayout, tensor_format: TensorFormat, kernel: str, out: Tensor | None,
) -> Tensor:  # fmt: skip
    """The long way, behind all checks; norms and scales are read, the shape of the cache is ``kv_layout``'s."""
    k_cache, v_cache, slot_mapping, *scales = cache
    check_angles("rotation", rotation)
    order = order_of(tensor_format)
    for name, x in (("q", q), ("k", k)):
        check_fits(name, x, rotation, order, tensor_format)
    check_pair(q, k)
    _check_values(v, k)
    _check_cache("k_cache", k_cache, k, result_dtype(k, rotation), kv_layout, order)
    _check_cache("v_cache", v_cache, v, k.dtype, kv_layout, order)
    if kv_layout == "HND":
        k_cache, v_cache = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
    if k_cache.shape[:2] != v_cache.shape[:2]:
        raise ValueError(
            "k_cache and v_cache must have the same blocks and block_size, "
            f"got {tuple(k_cache.shape[:2])} and {tuple(v_cache.shape[:2])}"
        )
    for name, scale, x in (("k_scale", scales[0], k), ("v_scale", scales[1], v)):
        check_scale(name, scale, x.shape[order.heads], x)
    weights = [w for of in (norm, v_norm) if of is not None for w in of[:2] if w is not None]
    for name, of, x in (("q", norm, q), ("k", norm, k)):
        weight = None if of is None else of[name == "k"]
        if weight is not None:
            check_weight(f"{name}_weight", weight, x, 1)
    _check_slots(slot_mapping, k, k_cache, order, tensor_format)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, k_cache, v_cache, *weights)):
        raise ValueError(
            "q, k, v, weights and caches must need no gradient, which a cache cannot keep; use torch.no_grad()"
        )
    pair = None if out is None else check_out(out, q, None, rotation, ("q", "k"))
    tensors = {"q": q, "k": k, "v": v, "out": out, "slot_mapping": slot_mapping, "rotation": rotation.cos}
    tensors |= {"rotation's sines": rotation.sin, "k_scale": scales[0], "v_scale": scales[1]}
    _check_overlaps(tensors | {f"weight {i}": w for i, w in enumerate(weights)}, k_cache, v_cache)
    cache = cache._replace(k=k_cache, v=v_cache)
    chosen = choose(kernel, q, k, rotation, norm)
    return chosen.rotate_into_cache(q, k, v, rotation, order, cache, pair and pair[0], norm, v_norm)


def _check_values(v: Any, k: Tensor) -> None:
    check_tensor("v", v)
    if v.shape[:-1] != k.shape[:-1] or (v.dtype, v.device) != (k.dtype, k.device):
        raise ValueError(
            f"v must be {k.dtype} {[*k.shape[:-1]]} and its channels, on {k.device}, as k is; "
            f"got {v.dtype} {[*v.shape]} on {v.device}"
        )


def _check_cache(name: str, cache: Any, x: Tensor, dtype: torch.dtype, kv_layout: str, order: Order) -> None:
    if not isinstance(cache, Tensor) or cache.dtype not in (FLOAT8, torch.uint8):
        check_tensor(name, cache)
    heads, width = x.shape[order.heads], x.shape[-1]
    axis = 2 if kv_layout == "NHD" else 1
    if cache.ndim != 4 or cache.shape[axis] != heads or cache.shape[-1] != width:
        other = "HND" if kv_layout == "NHD" else "NHD"
        hint = f"; did you mean kv_layout={other!r}?" if cache.ndim == 4 and cache.shape[3 - axis] == heads else ""
        raise ValueError(
            f"{name} must be {SHAPES[kv_layout].format(width)} with {heads} heads for kv_layout={kv_layout!r}, "
            f"got shape {tuple(cache.shape)}{hint}"
        )
    check_cache_format(name, cache, dtype, x)
    if readable(cache) and cache.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{name} was made in torch.inference_mode() and can be written there only")
    if overlaps_itself(cache):
        raise ValueError(f"{name} must not overlap itself, got strides {cache.stride()}")


def _check_slots(slots: Any, k: Tensor, cache: Tensor, order: Order, tensor_format: str) -> None:
    batch = order.batch_of(k)
    shape = (*(() if tensor_format == "thd" else batch), k.shape[order.tokens])
    if not isinstance(slots, Tensor) or slots.dtype not in (torch.int64, torch.int32) or slots.shape != shape:
        got = f"{slots.dtype} {tuple(slots.shape)}" if isinstance(slots, Tensor) else type(slots).__name__
        raise ValueError(f"slot_mapping must be integers {shape}, one for every token of k, got {got}")
    if slots.device != k.device:
        raise ValueError(f"slot_mapping and k must be on the same device, got {slots.device} and {k.device}")
    if not slots.is_cpu or not readable(slots) or not slots.numel():
        return
    size, block_size = cache.shape[0] * cache.shape[1], cache.shape[1]
    low, high = int(slots.min()), int(slots.max())
    if low < -1 or high >= size:
        raise ValueError(
            f"slot_mapping must be -1 (skip), or from 0 to {size - 1} ({cache.shape[0]} blocks of {block_size}), "
            f"got {low if low < -1 else high}"
        )
    used, counts = slots[slots >= 0].unique(return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"slot_mapping must give every token a slot of its own, got {int(used[counts > 1][0])} twice")


def _check_overlaps(tensors: dict[str, Tensor | None], k_cache: Tensor, v_cache: Tensor) -> None:
    if not all(readable(t) for t in (*tensors.values(), k_cache, v_cache) if t is not None):
        return
    out = tensors["out"]
    for name in ("k", "v", "slot_mapping"):
        if out is not None and overlap(out, tensors[name]):  # type: ignore[arg-type]
            raise ValueError(f"out must not overlap {name} (q itself is in place)")
    if overlap(k_cache, v_cache):
        raise ValueError("k_cache and v_cache must not overlap")
    for name, x in tensors.items():
        for of, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
            if x is not None and overlap(x, cache):
                raise ValueError(f"{of} must not overlap {name}")
