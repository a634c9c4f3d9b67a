"""Three ways to compute one formula; the reference is what the others mean."""

import warnings
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import Encoding
from ..base import ScoreMod, wide
from .mask import Mask


def _reference(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Tensor:
    group, dtype = q.shape[1] // k.shape[1], wide(q.dtype)
    wide_q = q.to(dtype)
    wide_k, wide_v = (x.to(dtype).repeat_interleave(group, dim=1) for x in (k, v))
    scores = wide_q @ wide_k.transpose(-1, -2) * scale
    bias = _bias(wide_q, wide_k, encoding, mask, scale)
    scores = scores if bias is None else scores + bias
    visible = mask.dense()
    if visible is not None:
        scores = scores.masked_fill(~visible, torch.finfo(dtype).min)
    weights = scores.softmax(dim=-1)
    if visible is not None:
        weights = weights * visible  # only a row without a visible key has weight elsewhere
    out = weights @ wide_v
    extra = encoding.values(weights, mask.q_positions, mask.k_positions)
    return (out if extra is None else out + extra).to(q.dtype)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    bias = _bias(q, k, encoding, mask, scale)
    if bias is None and mask.is_lower_triangle():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
    visible = mask.dense()
    if visible is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, enable_gqa=grouped)
    # A row without a visible key attends to everything and is zeroed after, so that no NaN is ever formed.
    blind = ~visible.any(dim=-1, keepdim=True)
    visible = visible | blind
    attn_mask = visible if bias is None else torch.where(visible, bias, -torch.inf)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale, enable_gqa=grouped)
    return out.masked_fill(blind, 0.0)


def _bias(q: Tensor, k: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Tensor | None:
    """What is added to the scores: by the encoding, and by the mask."""
    bias, added = encoding.bias(q, k, mask.q_positions, mask.k_positions, scale), mask.added
    if added is None:
        return bias
    added = added.to(wide(q.dtype))
    return added if bias is None else bias + added


def _flex(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Tensor:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # imports the compiler, a second

    batch, (rows, columns) = q.shape[0], (q.shape[-2], k.shape[-2])
    learned = any(p.requires_grad for p in encoding.parameters())
    on_cpu = q.device.type == "cpu"
    if (
        on_cpu
        and torch.is_grad_enabled()
        and (learned or any(x.requires_grad for x in (q, k, v, mask.attn_mask) if x is not None))
    ):
        raise ValueError(
            "kernel='flex' has no backward on a CPU and a gradient is needed here; "
            "use kernel='sdpa', or torch.no_grad() if you need none"
        )
    all_rows = mask.expand(batch)
    score_mod = _with(all_rows.added, encoding.score_mod(all_rows.q_positions, all_rows.k_positions))
    heads = None if mask.attn_mask is None or mask.attn_mask.shape[1] == 1 else q.shape[1]
    block_mask = create_block_mask(mask.mask_mod(batch), batch, heads, rows, columns, device=str(q.device))
    grouped = q.shape[1] != k.shape[1]
    if not on_cpu:
        return _compiled_flex()(q, k, v, score_mod, block_mask, scale, grouped)
    with warnings.catch_warnings():  # torch warns that it is slow uncompiled: on a CPU it is here to check score_mods
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, v, score_mod, block_mask, scale, grouped)


def _with(added: Tensor | None, score_mod: ScoreMod | None) -> ScoreMod | None:
    if added is None:
        return score_mod

    def both(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (score if score_mod is None else score_mod(score, b, h, i, j)) + added[
            b, h if added.shape[1] > 1 else 0, i, j
        ]

    return both


KERNELS = {"sdpa": _sdpa, "reference": _reference, "flex": _flex}


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)
