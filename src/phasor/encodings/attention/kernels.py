"""Three ways to compute one formula; the reference is what the others mean."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..base import Encoding, ScoreMod, Tokens, exactly, for_heads, wide
from ..grouped import Grouped, Part
from .mask import Mask

AT_ONCE = 2**22  # logits, 16 MiB in float32: on a CPU faster than more; a GPU wants more work for each launch
FEWEST = 64  # queries at a time
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _reference(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, gates: Tensor | None, scale: float
) -> Tensor:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, gates: Tensor | None) -> Tensor:
        tokens = _tokens(mask, gates)
        logits = _scores(q, k, encoding, mask) * scale
        bias = _bias(q, k, encoding, tokens, mask.added, scale)
        weights = encoding.weights(logits if bias is None else logits + bias, tokens)
        extra = encoding.values(weights, mask.q_positions, mask.k_positions)
        return weights @ v if extra is None else weights @ v + extra

    wide_q, wide_k, wide_v = (for_heads(x.to(wide(x.dtype)), q.shape[1]) for x in (q, k, v))
    with exactly(q):
        return _by_rows(attend, wide_q, wide_k, wide_v, mask, gates, encoding.whole_only).to(q.dtype)


def _by_rows(
    attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Mask, gates: Tensor | None, whole_rows: bool
) -> Tensor:
    """Attention for some queries at a time and the keys that they may see: `AT_ONCE` logits, or those of `FEWEST`.

    Where there are more, each part is formed again in the backward pass, so that no more are kept for it either.
    """
    length, keys = q.shape[-2], k.shape[-2]
    rows = max(FEWEST, AT_ONCE * (1 if q.is_cpu else 16) // max(1, q.shape[0] * q.shape[1] * keys))
    if length <= rows:
        return attend(q, k, v, mask, gates)
    until_query, parts = mask.rises() and not whole_rows, []
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        seen = mask.seen_by(start, stop) if until_query else slice(0, keys)
        of_keys = (k[:, :, seen], v[:, :, seen], mask.part(slice(start, stop), seen))
        part = (q[:, :, start:stop], *of_keys, None if gates is None else gates[:, :, seen])
        again = torch.is_grad_enabled()
        parts.append(checkpoint(attend, *part, use_reentrant=False) if again else attend(*part))
    return torch.cat(parts, dim=-2)


def _tokens(mask: Mask, gates: Tensor | None) -> Tokens:
    return Tokens(mask.q_positions, mask.k_positions, mask.dense(), gates)


def _scores(q: Tensor, k: Tensor, encoding: Encoding, mask: Mask) -> Tensor:
    if not isinstance(encoding, Grouped):
        return q @ k.transpose(-1, -2)
    scores = q.new_zeros(*q.shape[:-1], k.shape[-2])
    m, n = mask.q_positions[:, None, :, None], mask.k_positions[:, None, None, :]
    for part in encoding.parts:
        part_q, part_k = encoding.rotate_part(part, q, k, mask.q_positions, mask.k_positions)
        scores = torch.where(part.where(m, n), part_q @ part_k.transpose(-1, -2), scores)
    return scores


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, gates: Tensor | None, scale: float
) -> Tensor:
    grouped = q.shape[1] != k.shape[1]

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, gates: Tensor | None) -> Tensor:
        tokens = _tokens(mask, gates)
        bias, visible = _bias(q, k, encoding, tokens, mask.added, scale), tokens.visible
        if visible is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, enable_gqa=grouped)
        # A row without a visible key attends to everything and is zeroed after, so that no NaN is ever formed.
        blind = ~visible.any(dim=-1, keepdim=True)
        visible = visible | blind
        attn_mask = visible if bias is None else torch.where(visible, bias, -torch.inf)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale, enable_gqa=grouped)
        return out.masked_fill(blind, 0.0)

    if q.shape[-2] == 1:
        return attend(q, k, v, mask, gates)
    first = mask.part(slice(0, 1), slice(None))
    if mask.window or _bias(q[:, :, :1], k, encoding, _tokens(first, gates), first.added, scale) is not None:
        along = _along_distances(q, encoding, mask, scale)
        if along is not None:
            return _by_rows(along, q, k, v, mask, gates, False)
        return _by_rows(attend, q, k, v, mask, gates, encoding.whole_only)
    if mask.is_lower_triangle():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
    return attend(q, k, v, mask, gates)


def _along_distances(q: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Callable[..., Tensor] | None:
    """Attention that forms a bias for each distance only; None where the bias, or what is visible, goes by more.

    Pairs of one distance share a number of one row. With the queries backwards, the pairs of the next query begin one
    number further on, so that the row itself can be read as the bias of them all.
    """
    own = _owner(encoding, "by_distance")
    if not all(issubclass(own, _owner(encoding, name)) for name in ("bias", "content_bias")) or not mask.counts():
        return None  # a subclass that overrides its bias has inherited another one's row
    m, n = mask.q_positions[0], mask.k_positions[0]
    low, high = int(n[0] - m[-1]), int(n[-1] - m[0])
    r = torch.arange(low, high + 1, device=m.device)
    with exactly(q):
        row = encoding.by_distance(r, int(m[-1]), wide(q.dtype))
    if row is None:
        return None
    if mask.causal:
        row = row.masked_fill(r > 0, -torch.inf)
    if mask.window is not None:
        row = row.masked_fill(r <= -mask.window, -torch.inf)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, gates: Tensor | None) -> Tensor:
        begin = int(mask.k_positions[0, 0] - mask.q_positions[0, -1]) - low
        keys = k.shape[-2]
        bias = row[None, :, begin : begin + q.shape[-2] + keys - 1].unfold(-1, keys, 1)
        grouped = q.shape[1] != k.shape[1]
        backwards = F.scaled_dot_product_attention(q.flip(-2), k, v, bias, scale=scale, enable_gqa=grouped)
        return backwards.flip(-2)

    return attend


def _owner(encoding: Encoding, name: str) -> type:
    """The class that defines what the encoding has of this name."""
    return next(kind for kind in type(encoding).__mro__ if name in vars(kind))


def _bias(
    q: Tensor, k: Tensor, encoding: Encoding, tokens: Tokens, added: Tensor | None, scale: float
) -> Tensor | None:
    """What is added to the scores: by the encoding, and by the mask."""
    with exactly(q):
        bias = encoding.content_bias(q, k, tokens, scale)
    if added is None:
        return bias
    added = added.to(wide(q.dtype))
    return added if bias is None else bias + added


def _flex(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, gates: Tensor | None, scale: float
) -> Tensor:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # imports the compiler, a second

    batch, (rows, columns) = q.shape[0], (q.shape[-2], k.shape[-2])
    learned = any(p.requires_grad for p in encoding.parameters())
    on_cpu = q.device.type == "cpu"
    if (
        on_cpu
        and torch.is_grad_enabled()
        and (learned or any(x.requires_grad for x in (q, k, v, mask.attn_mask, gates) if x is not None))
    ):
        raise ValueError(
            "kernel='flex' has no backward on a CPU and a gradient is needed here; "
            "use kernel='sdpa', or torch.no_grad() if you need none"
        )
    all_rows = mask.expand(batch)
    tokens = Tokens(all_rows.q_positions, all_rows.k_positions, gates=gates)
    score_mod = _with(all_rows.added, encoding.content_score_mod(tokens))
    _check_pair(q, k, encoding, tokens, scale)
    heads = None if mask.attn_mask is None or mask.attn_mask.shape[1] == 1 else q.shape[1]
    visible, grouped = mask.mask_mod(batch), q.shape[1] != k.shape[1]

    def run(q: Tensor, k: Tensor, rule: MaskMod, with_sums: bool) -> Any:
        block_mask = create_block_mask(rule, batch, heads, rows, columns, device=str(q.device))
        how = (score_mod, block_mask, scale, grouped)
        if not on_cpu:
            return _compiled_flex()(q, k, v, *how, return_lse=with_sums)
        with warnings.catch_warnings():  # that it is slow uncompiled, which here only checks score_mods; and of its
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            warnings.filterwarnings("ignore", message="return_lse is deprecated")  # other name, which older torch lacks
            return flex_attention(q, k, v, *how, return_lse=with_sums)  # type: ignore[call-overload]

    if not isinstance(encoding, Grouped):
        return run(q, k, visible, False)  # type: ignore[no-any-return]
    parts = [
        run(
            *encoding.rotate_part(part, q, k, all_rows.q_positions, all_rows.k_positions),
            _both(visible, part, all_rows),
            True,
        )
        for part in encoding.parts
    ]
    return _merged(parts).to(q.dtype)


def _check_pair(q: Tensor, k: Tensor, encoding: Encoding, tokens: Tokens, scale: float) -> None:
    """What its bias refuses, by that of one pair: of too few heads a ``score_mod`` would take those of others."""
    one = slice(0, 1)
    q, k, m, n = q[:, :, one], k[:, :, one], tokens.q_positions[:, one], tokens.k_positions[:, one]
    visible = torch.ones(1, 1, q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    gates = None if tokens.gates is None else tokens.gates[:, :, one]
    encoding.content_bias(q, k, Tokens(m, n, visible, gates), scale)


def _both(visible: MaskMod, part: Part, rows: Mask) -> MaskMod:
    """What is visible and of this part."""

    def rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return visible(b, h, i, j) & part.where(rows.q_positions[b, i], rows.k_positions[b, j])

    return rule


def _merged(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """One softmax over keys that were attended to part by part: each part by its sum of exponentials."""
    sums = torch.stack([lse for _, lse in parts])
    shares = sums.softmax(0).masked_fill(sums == -torch.inf, 0.0)  # also where no part sees a key
    return sum((out * share[..., None] for (out, _), share in zip(parts, shares, strict=True)), torch.tensor(0.0))


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
