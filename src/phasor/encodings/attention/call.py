"""The one function that attends."""

from typing import Literal

from torch import Tensor

from ..base import Encoding, exactly
from ..grouped import Grouped
from ..none import NoPE
from .cache import KVCache
from .checks import (
    check_call,
    check_encoding,
    check_hidden,
    check_inputs,
    check_mask,
    check_padding,
    check_tokens,
)
from .gates import gates_of
from .kernels import KERNELS
from .mask import Mask

Kernel = Literal["auto", "sdpa", "reference", "flex"]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    q_positions: Tensor,
    k_positions: Tensor | None = None,
    hidden: Tensor | None = None,
    causal: bool = True,
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    document_ids: Tensor | tuple[Tensor, Tensor] | None = None,
    scale: float | None = None,
    kernel: Kernel = "auto",
    cache: KVCache | None = None,
) -> Tensor:
    """``softmax(scale q k^T + bias) v``, with q, k, bias, softmax and values as the encoding has them.

    q is ``[B, H, Q, head_dim]``, k and v ``[B, H_kv, K, head_dim]`` with H a multiple of H_kv: query heads
    ``g H / H_kv ... (g + 1) H / H_kv`` share key head g. Returns a new ``[B, H, Q, head_dim]`` tensor in q's dtype.
    A query that may see no key gets zeros.

    - ``q_positions``, ``k_positions``: int64 ``[S]`` or ``[B, S]``; the keys' default to the queries'.
    - ``hidden``: the hidden states ``[B, K, dim]`` of the keys' tokens, which q, k and v were projected from. `FoX` and
      `PaTH` take their gates from it; others leave it alone.
    - ``causal``: a query at m sees keys at ``n <= m``, whatever their order in memory. Positions that two keys of a
      row share leave in doubt which is the earlier: they are refused (on a CPU; elsewhere values are not looked at)
      unless ``attn_mask`` says it, one key is padding, or their documents differ.
    - ``attn_mask``: as SDPA takes it, broadcastable to ``[B, H, Q, K]``, K with all keys of the cache: True where a
      query may see a key, or floats that are added to the scores (``-inf`` hides). It hides beside all other rules: a
      tree of drafted tokens gives each token the position of its depth, and a mask of its ancestors.
    - ``key_padding_mask``: bool ``[B, K]``, True where a key is padding (as in `torch.nn.MultiheadAttention`, the
      opposite of a tokenizer's ``attention_mask``).
    - ``document_ids``: integers ``[S]`` or ``[B, S]``; tokens see their own document only. A pair if q and k differ.
    - ``scale``: ``1 / sqrt(head_dim)`` if None, where the encoding leaves no doubt about it (see `T5Bias`).
    - ``cache``: k and v are the new tokens'; they are appended (rotated), and q sees all that the cache holds.
    - ``kernel``: ``"sdpa"`` is `torch.nn.functional.scaled_dot_product_attention`; ``"flex"`` is FlexAttention,
      compiled on a GPU and forward only on a CPU; ``"reference"`` is the plain formula in float32 or float64, the
      meaning of the others. A kernel that cannot compute what is asked raises. ``"auto"`` is sdpa, or reference if
      the encoding needs the softmax weights or has several positions for a token (`Grouped`).

    Example: two equal logits, so each of the visible values has half of the weight.

    >>> import torch
    >>> q, t = torch.zeros(1, 1, 2, 1), torch.arange(2)
    >>> v = torch.tensor([2.0, 4.0]).view(1, 1, 2, 1)
    >>> attention(q, q, v, q_positions=t).flatten().tolist()
    [2.0, 3.0]
    """
    encoding = NoPE() if encoding is None else encoding
    k_positions = q_positions if k_positions is None else k_positions
    q_documents, k_documents = document_ids if isinstance(document_ids, tuple) else (document_ids, document_ids)
    check_encoding(encoding)
    check_call(encoding, causal, alone=all(x is None for x in (cache, key_padding_mask, document_ids, attn_mask)))
    check_inputs(q, k, v)
    check_tokens("q_positions", q_positions, q)
    check_tokens("k_positions", k_positions, k)
    check_tokens("document_ids of q", q_documents, q)
    check_tokens("document_ids of k", k_documents, k)
    check_padding(key_padding_mask, k)
    check_hidden(encoding, hidden, k)
    attn_mask = check_mask(attn_mask, q, k.shape[-2] + (0 if cache is None else len(cache)))

    with exactly(q):
        q, k = encoding.rotate(q, k, q_positions, k_positions)
    tokens = [None if ids is None else _rows(ids) for ids in (q_documents, k_documents)]
    mask = Mask(
        causal, _rows(q_positions), _rows(k_positions), key_padding_mask, tokens[0], tokens[1], attn_mask,
        encoding.window, type(encoding).__name__ if encoding.in_order else None,
    )  # fmt: skip
    gates, before = gates_of(encoding, hidden, mask, cache)
    if cache is None:
        mask.check_order()
    else:
        k, v, mask = cache.append(k, v, mask, gates)
        gates, cache.hidden = cache.gates, before
    scale = encoding.default_scale(q.shape[-1]) if scale is None else scale
    if kernel == "auto":
        kernel = "reference" if encoding.needs_weights or isinstance(encoding, Grouped) else "sdpa"
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be 'auto', 'sdpa', 'flex' or 'reference', got {kernel!r}")
    if encoding.needs_weights and kernel != "reference":
        raise ValueError(
            f"kernel={kernel!r} never forms the softmax weights that {type(encoding).__name__} needs; "
            "use kernel='reference'"
        )
    if kernel == "sdpa" and isinstance(encoding, Grouped):
        raise ValueError(
            f"kernel='sdpa' has one position for each token, and {type(encoding).__name__} several; "
            "use kernel='flex' or 'reference'"
        )
    return KERNELS[kernel](q, k, v, encoding, mask, gates, scale)


def _rows(tokens: Tensor) -> Tensor:
    return tokens.unsqueeze(0) if tokens.ndim == 1 else tokens
