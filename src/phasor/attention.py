"""Attention with any `Encoding`: masks by position, packed documents, padding, grouped heads and a KV cache.

Which key a query may see is decided by the positions, never by the row and column of a matrix. So one rule serves whole
sequences, decoding with a cache, left padding, shards and packed documents.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .encodings import Encoding, NoPE
from .encodings.base import wide

Kernel = Literal["auto", "sdpa", "reference", "flex"]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    q_positions: Tensor,
    k_positions: Tensor | None = None,
    causal: bool = True,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | tuple[Tensor, Tensor] | None = None,
    scale: float | None = None,
    kernel: Kernel = "auto",
    cache: "KVCache | None" = None,
) -> Tensor:
    """``softmax(scale q k^T + bias) v``, with q, k, bias and values as the encoding has them.

    q is ``[B, H, Q, head_dim]``, k and v ``[B, H_kv, K, head_dim]`` with H a multiple of H_kv: query heads
    ``g H / H_kv ... (g + 1) H / H_kv`` share key head g. Returns a new ``[B, H, Q, head_dim]`` tensor in q's dtype.
    A query that may see no key gets zeros.

    - ``q_positions``, ``k_positions``: int64 ``[S]`` or ``[B, S]``; the keys' default to the queries'.
    - ``causal``: a query at m sees keys at ``n <= m``, whatever their order in memory.
    - ``key_padding_mask``: bool ``[B, K]``, True where a key is padding (as in `torch.nn.MultiheadAttention`, the
      opposite of a tokenizer's ``attention_mask``).
    - ``document_ids``: integers ``[S]`` or ``[B, S]``; tokens see their own document only. A pair if q and k differ.
    - ``scale``: ``1 / sqrt(head_dim)`` if None, where the encoding leaves no doubt about it (see `T5Bias`).
    - ``cache``: k and v are the new tokens'; they are appended (rotated), and q sees all that the cache holds.
    - ``kernel``: ``"sdpa"`` is `torch.nn.functional.scaled_dot_product_attention`; ``"flex"`` is FlexAttention,
      compiled on a GPU and forward only on a CPU; ``"reference"`` is the plain formula in float32 or float64, the
      meaning of the others. A kernel that cannot compute what is asked raises. ``"auto"`` is sdpa, or reference if
      the encoding needs the softmax weights.

    Example: two equal logits, so each of the visible values has half of the weight.

    >>> q, t = torch.zeros(1, 1, 2, 1), torch.arange(2)
    >>> v = torch.tensor([2.0, 4.0]).view(1, 1, 2, 1)
    >>> attention(q, q, v, q_positions=t).flatten().tolist()
    [2.0, 3.0]
    """
    encoding = NoPE() if encoding is None else encoding
    k_positions = q_positions if k_positions is None else k_positions
    q_documents, k_documents = document_ids if isinstance(document_ids, tuple) else (document_ids, document_ids)
    _check_inputs(q, k, v)
    _check_tokens("q_positions", q_positions, q)
    _check_tokens("k_positions", k_positions, k)
    _check_tokens("document_ids of q", q_documents, q)
    _check_tokens("document_ids of k", k_documents, k)
    _check_padding(key_padding_mask, k)

    q, k = encoding.rotate(q, k, q_positions, k_positions)
    documents = [None if ids is None else _rows(ids) for ids in (q_documents, k_documents)]
    mask = Mask(causal, _rows(q_positions), _rows(k_positions), key_padding_mask, *documents)
    if cache is not None:
        k, v, mask = cache.append(k, v, mask)
    scale = encoding.default_scale(q.shape[-1]) if scale is None else scale
    if kernel == "auto":
        kernel = "reference" if encoding.needs_weights else "sdpa"
    if kernel not in _KERNELS:
        raise ValueError(f"kernel must be 'auto', 'sdpa', 'flex' or 'reference', got {kernel!r}")
    if encoding.needs_weights and kernel != "reference":
        raise ValueError(
            f"kernel={kernel!r} never forms the softmax weights that {type(encoding).__name__} needs for its values; "
            "use kernel='reference'"
        )
    return _KERNELS[kernel](q, k, v, encoding, mask, scale)


@dataclass(frozen=True)
class Mask:
    """Which key each query may see. Token fields are rows, ``[B, S]`` or ``[1, S]`` if all sequences share them."""

    causal: bool
    q_positions: Tensor
    k_positions: Tensor
    key_padding: Tensor | None = None
    q_documents: Tensor | None = None
    k_documents: Tensor | None = None

    def dense(self) -> Tensor | None:
        """True where visible, ``[B or 1, 1, Q, K]``; None if everything is."""
        rules = []
        if self.causal:
            rules.append(self.k_positions[:, None, None, :] <= self.q_positions[:, None, :, None])
        if self.key_padding is not None:
            rules.append(~self.key_padding[:, None, None, :])
        if self.q_documents is not None and self.k_documents is not None:
            rules.append(self.q_documents[:, None, :, None] == self.k_documents[:, None, None, :])
        visible = None
        for rule in rules:
            visible = rule if visible is None else visible & rule
        return visible

    def is_lower_triangle(self) -> bool:
        """True if `dense` is SDPA's ``is_causal``, which is faster. Reads values, so it runs on a CPU only."""
        if torch.compiler.is_compiling() or not self.causal or self.q_positions.device.type != "cpu":
            return False
        plain = self.key_padding is None and self.q_documents is None
        rising = bool((self.q_positions.diff() > 0).all())
        return plain and rising and torch.equal(self.q_positions, self.k_positions)

    def mask_mod(self, batch: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """`dense` as FlexAttention asks for it."""
        rows = self.expand(batch)

        def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            seen = rows.k_positions[b, j] <= rows.q_positions[b, i] if rows.causal else j >= 0
            if rows.key_padding is not None:
                seen = seen & ~rows.key_padding[b, j]
            if rows.q_documents is not None and rows.k_documents is not None:
                seen = seen & (rows.q_documents[b, i] == rows.k_documents[b, j])
            return seen

        return visible

    def expand(self, batch: int) -> "Mask":
        """The same mask with one row for every sequence of the batch."""
        names = ("q_positions", "k_positions", "key_padding", "q_documents", "k_documents")
        rows = {name: getattr(self, name) for name in names}
        return replace(self, **{name: row.expand(batch, -1) for name, row in rows.items() if row is not None})


class KVCache:
    """Keys (as the encoding rotated them), values and the positions, padding and documents of their tokens.

    Every rotated key stays as it is for good, so a rotation that depends on length must be fixed beforehand
    (``Rotary(spec, seq_len=)``). Grows by concatenation. One cache per layer.

    >>> cache, q = KVCache(), torch.zeros(1, 1, 1, 2)
    >>> for t in range(3):
    ...     out = attention(q, q, q, q_positions=torch.tensor([t]), cache=cache)
    >>> len(cache), cache.k_positions.tolist()
    (3, [[0, 1, 2]])
    """

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.k_positions: Tensor | None = None
        self.key_padding: Tensor | None = None
        self.k_documents: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.k is None else self.k.shape[-2]

    def append(self, k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Mask]:
        """Add new tokens; return all keys, all values, and the mask of the new queries over all of them."""
        batch, rows = k.shape[0], mask.expand(k.shape[0])
        padding = k.new_zeros(batch, k.shape[-2], dtype=torch.bool) if rows.key_padding is None else rows.key_padding
        positions, documents = rows.k_positions, rows.k_documents
        if self.k is not None and self.v is not None:
            assert self.k_positions is not None and self.key_padding is not None
            if k.shape[:2] != self.k.shape[:2]:
                raise ValueError(
                    f"k must have the batch and heads of the cache, {list(self.k.shape[:2])}, got {list(k.shape[:2])}; "
                    "start a new KVCache for a new batch and for every layer"
                )
            if (documents is None) != (self.k_documents is None):
                raise ValueError("document_ids must be given for all tokens of a KVCache or for none; got both kinds")
            k, v = torch.cat((self.k, k), dim=-2), torch.cat((self.v, v), dim=-2)
            positions = torch.cat((self.k_positions, positions), dim=-1)
            padding = torch.cat((self.key_padding, padding), dim=-1)
            if documents is not None and self.k_documents is not None:
                documents = torch.cat((self.k_documents, documents), dim=-1)
        self.k, self.v, self.k_positions, self.key_padding, self.k_documents = k, v, positions, padding, documents
        return k, v, replace(mask, k_positions=positions, key_padding=padding, k_documents=documents)


def _reference(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Tensor:
    group, dtype = q.shape[1] // k.shape[1], wide(q.dtype)
    wide_q = q.to(dtype)
    wide_k, wide_v = (x.to(dtype).repeat_interleave(group, dim=1) for x in (k, v))
    scores = wide_q @ wide_k.transpose(-1, -2) * scale
    bias = encoding.bias(wide_q, wide_k, mask.q_positions, mask.k_positions, scale)
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
    bias = encoding.bias(q, k, mask.q_positions, mask.k_positions, scale)
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


def _flex(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Mask, scale: float) -> Tensor:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # imports the compiler, a second

    batch, (rows, columns) = q.shape[0], (q.shape[-2], k.shape[-2])
    learned = any(p.requires_grad for p in encoding.parameters())
    on_cpu = q.device.type == "cpu"
    if on_cpu and torch.is_grad_enabled() and (learned or any(x.requires_grad for x in (q, k, v))):
        raise ValueError(
            "kernel='flex' has no backward on a CPU and a gradient is needed here; "
            "use kernel='sdpa', or torch.no_grad() if you need none"
        )
    all_rows = mask.expand(batch)
    score_mod = encoding.score_mod(all_rows.q_positions, all_rows.k_positions)
    block_mask = create_block_mask(mask.mask_mod(batch), batch, None, rows, columns, device=str(q.device))
    grouped = q.shape[1] != k.shape[1]
    if not on_cpu:
        return _compiled_flex()(q, k, v, score_mod, block_mask, scale, grouped)
    with warnings.catch_warnings():  # torch warns that it is slow uncompiled: on a CPU it is here to check score_mods
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, v, score_mod, block_mask, scale, grouped)


_KERNELS = {"sdpa": _sdpa, "reference": _reference, "flex": _flex}


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _rows(tokens: Tensor) -> Tensor:
    return tokens.unsqueeze(0) if tokens.ndim == 1 else tokens


def _check_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.ndim != 4 or k.ndim != 4 or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            "q must be [B, H, Q, head_dim] and k, v [B, H_kv, K, head_dim], "
            f"got {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must agree in batch and head_dim, got {tuple(q.shape)} and {tuple(k.shape)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q's heads must be a multiple of k's, got {q.shape[1]} and {k.shape[1]}; "
            "if the tensors are [B, S, H, head_dim] ('bshd'), transpose(1, 2) them"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must have one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")


def _check_tokens(name: str, tokens: Tensor | None, x: Tensor) -> None:
    if tokens is None:
        return
    if tokens.dtype != torch.int64:
        raise ValueError(f"{name} must be int64, got {tokens.dtype}; convert with .to(torch.int64)")
    batch, length = x.shape[0], x.shape[-2]
    if tokens.shape not in ((length,), (batch, length)):
        raise ValueError(
            f"{name} must be [S] or [B, S] with S = {length} and B = {batch}, got {list(tokens.shape)}; "
            "for keys of their own give k_positions (and a pair of document_ids), "
            "and if the tensors are [B, S, H, head_dim] ('bshd'), transpose(1, 2) them"
        )


def _check_padding(key_padding_mask: Tensor | None, k: Tensor) -> None:
    if key_padding_mask is None:
        return
    if key_padding_mask.dtype != torch.bool or key_padding_mask.shape != (k.shape[0], k.shape[-2]):
        raise ValueError(
            f"key_padding_mask must be bool [B, K] = {[k.shape[0], k.shape[-2]]}, True where a key is padding, got "
            f"{key_padding_mask.dtype} {list(key_padding_mask.shape)}; from a tokenizer: attention_mask == 0"
        )
