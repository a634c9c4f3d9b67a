"""apply_rotary_to_latent_cache: MLA's cache row, a latent and one rotated key, in one call."""

from typing import Any

from torch import Tensor

from ..kernels import Cache, Norm, Order, Rounding
from ..rotation import Rotation
from .cached import into_cache
from .formats import TensorFormat, order_of
from .input_checks import check_angles, check_fits, check_tensor
from .normed import check_norm, check_weight
from .scales import Scale, check_cache_format, read_scale


def apply_rotary_to_latent_cache(
    q: Tensor,
    k: Tensor,
    latent: Tensor,
    rotation: Rotation,
    cache: Tensor,
    slot_mapping: Tensor,
    *,
    scale: Scale = None,
    latent_weight: Tensor | None = None,
    eps: float | None = None,
    unit_offset: bool = False,
    rounding: Rounding = "once",
    tensor_format: TensorFormat = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Rotate the rotary parts of MLA's q and k; write ``[latent | rotated k]`` into a cache row. Returns the rotated q.

    Multi-head latent attention (DeepSeek V2 and V3, Kimi K2) keeps one row per token: the compressed keys and values,
    ``rank`` channels, and one key that all heads share, ``rope_dim`` channels, which alone rotates.

    - ``q`` are the channels that rotate, ``[batch, heads, seq, rope_dim]`` or in another ``tensor_format``, of any
      strides: a view of the whole heads;
    - ``k`` the same with one head;
    - ``latent`` ``[batch, seq, rank]`` (``"sbhd"``: ``[seq, batch, rank]``; ``"thd"``: ``[tokens, rank]``). With
      ``eps`` it is normalised first: ``latent / sqrt(mean(latent ** 2) + eps) * latent_weight`` (``kv_a_layernorm``),
      rounded as `apply_qk_norm_rotary` says;
    - ``cache`` ``[blocks, block_size, rank + rope_dim]`` of their dtype (vLLM's `concat_and_cache_mla`), or of
      ``torch.float8_e4m3fn`` with one ``scale`` for the whole row, as in `apply_rotary_to_cache`.

    Slots, ``kernel`` and ``out``, the rotated q, are those of `apply_rotary_to_cache`. There are no gradients.

    Raises ``ValueError``, before anything is written, for a k of more than one head, for a latent or a cache of another
    shape, dtype or device, and for all that `apply_rotary_to_cache` refuses.

    >>> import torch
    >>> quarter = Rotation.from_tables(torch.zeros(1, 1), torch.ones(1, 1), form="half")
    >>> x, cache = torch.tensor([[[1.0, 0.0]]]), torch.zeros(1, 2, 5)
    >>> about = {"tensor_format": "thd", "eps": 0.0}
    >>> _ = apply_rotary_to_latent_cache(x, x, torch.ones(1, 3) * 7, quarter, cache, torch.tensor([1]), **about)
    >>> cache[0].tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0]]
    """
    check_angles("rotation", rotation)
    order = order_of(tensor_format)
    check_fits("k", k, rotation, order, tensor_format)
    _check_latent(latent, k, order)
    rank = latent.shape[-1]
    _check_rows(cache, rank + k.shape[-1], latent)
    norm = None if eps is None else Norm(latent_weight, None, eps, unit_offset, rounding=rounding)
    check_norm(norm, latent_weight=latent_weight)
    if latent_weight is not None:
        check_weight("latent_weight", latent_weight, latent, 1)
    keys, values = cache[..., rank:].unsqueeze(2), cache[..., :rank].unsqueeze(2)
    pages = Cache(keys, values, slot_mapping, *(read_scale("scale", scale, cache),) * 2)
    v = latent.unsqueeze(order.heads)
    return into_cache(q, k, v, rotation, pages, None, norm, "NHD", tensor_format, kernel, out)


def _check_latent(latent: Any, k: Tensor, order: Order) -> None:
    check_tensor("latent", latent)
    if k.shape[order.heads] != 1:
        raise ValueError(f"k must have one head, which all heads of q share, got {k.shape[order.heads]}")
    rows = k.squeeze(order.heads).shape[:-1]
    if latent.shape[:-1] != rows or (latent.dtype, latent.device) != (k.dtype, k.device):
        raise ValueError(
            f"latent must be {k.dtype} {[*rows]} and its channels, on {k.device}, as k is without its heads; "
            f"got {latent.dtype} {[*latent.shape]} on {latent.device}"
        )


def _check_rows(cache: Any, width: int, latent: Tensor) -> None:
    if not isinstance(cache, Tensor) or cache.ndim != 3 or cache.shape[-1] != width:
        got = f"shape {tuple(cache.shape)}" if isinstance(cache, Tensor) else type(cache).__name__
        parts = f"{latent.shape[-1]} of the latent and {width - latent.shape[-1]} of k"
        raise ValueError(f"cache must be [blocks, block_size, {width}], {parts}, got {got}")
    check_cache_format("cache", cache, latent.dtype, latent)
