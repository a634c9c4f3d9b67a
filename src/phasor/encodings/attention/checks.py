"""What q, k, v and the rows of tokens must be."""

import torch
from torch import Tensor

from ...rotary.spec import RotarySpec
from ...support.tracing import readable
from ..base import Encoding


def check_encoding(encoding: object) -> None:
    if isinstance(encoding, Encoding):
        for name, weight in encoding.named_parameters():
            if readable(weight) and weight.is_cpu and not bool(weight.isfinite().all()):
                raise ValueError(
                    f"{name} of {type(encoding).__name__} must be finite, got NaN or infinity; "
                    "its training has diverged, or its checkpoint is damaged"
                )
        return
    got = f"the class {encoding.__name__}" if isinstance(encoding, type) else type(encoding).__name__
    way = "Rotary(spec)" if isinstance(encoding, RotarySpec) else "Rotary(RotarySpec(head_dim=...)) is one"
    raise ValueError(f"encoding must be an instance of phasor.encodings.Encoding, or None, got {got}; {way}")


def check_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
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


def check_tokens(name: str, tokens: Tensor | None, x: Tensor) -> None:
    if tokens is None:
        return
    if not isinstance(tokens, Tensor):
        raise ValueError(
            f"{name} must be an int64 tensor [S] or [B, S], got {type(tokens).__name__}; torch.tensor(...)"
        )
    if tokens.dtype != torch.int64:
        raise ValueError(f"{name} must be int64, got {tokens.dtype}; convert with .to(torch.int64)")
    batch, length = x.shape[0], x.shape[-2]
    if tokens.shape not in ((length,), (batch, length)):
        raise ValueError(
            f"{name} must be [S] or [B, S] with S = {length} and B = {batch}, got {list(tokens.shape)}; "
            "for keys of their own give k_positions (and a pair of document_ids), "
            "and if the tensors are [B, S, H, head_dim] ('bshd'), transpose(1, 2) them"
        )


def check_call(encoding: Encoding, causal: bool, alone: bool) -> None:
    """What an encoding asks of every call; ``alone`` where a row has no cache, padding, documents or mask."""
    name = type(encoding).__name__
    if encoding.axes > 1 and type(encoding).rotate is not Encoding.rotate:  # rows of positions would pass for its axes
        raise ValueError(
            f"encoding must go by one position for each token, and {name} has {encoding.axes} coordinates; "
            "Placed(encoding, coordinates) numbers the tokens, or rotate q and k first"
        )
    if encoding.causal_only and not causal:
        raise ValueError(f"causal must be True for {name}, which places earlier keys only, got False")
    if encoding.whole_only and not alone:
        raise ValueError(
            f"cache, key_padding_mask, document_ids and attn_mask must be None for {name}: a row depends on the key "
            "behind it, so that neither decoding nor packing gives the rows of a full pass; run whole sequences"
        )


def check_hidden(encoding: Encoding, hidden: Tensor | None, k: Tensor) -> None:
    """The hidden states of the keys' tokens, which must be there if the encoding has gates."""
    shape = None if hidden is None else list(hidden.shape)
    if encoding.gated if shape is None else len(shape) != 3 or shape[:2] != [k.shape[0], k.shape[-2]]:
        raise ValueError(
            f"hidden must be [B, K, dim] with B = {k.shape[0]} and K = {k.shape[-2]} for {type(encoding).__name__}, "
            f"the hidden states that k was projected from, got {shape}"
        )


def check_padding(key_padding_mask: Tensor | None, k: Tensor) -> None:
    if key_padding_mask is None:
        return
    if key_padding_mask.dtype != torch.bool or key_padding_mask.shape != (k.shape[0], k.shape[-2]):
        raise ValueError(
            f"key_padding_mask must be bool [B, K] = {[k.shape[0], k.shape[-2]]}, True where a key is padding, got "
            f"{key_padding_mask.dtype} {list(key_padding_mask.shape)}; from a tokenizer: attention_mask == 0"
        )


def check_mask(attn_mask: Tensor | None, q: Tensor, keys: int) -> Tensor | None:
    """The mask as ``[B or 1, H or 1, Q, K]``."""
    if attn_mask is None:
        return None
    full, got = (*q.shape[:3], keys), type(attn_mask).__name__
    if isinstance(attn_mask, Tensor):
        got = f"{attn_mask.dtype} {list(attn_mask.shape)} on {attn_mask.device}"
        typed = attn_mask.dtype == torch.bool or attn_mask.is_floating_point()
        sizes = zip(attn_mask.shape[::-1], full[::-1], strict=False)
        if typed and attn_mask.ndim <= 4 and attn_mask.device == q.device and all(n in (1, most) for n, most in sizes):
            four = attn_mask[(None,) * (4 - attn_mask.ndim)]
            return four.expand(-1, -1, *full[2:])
    raise ValueError(
        "attn_mask must be bool (True where a query may see a key) or floats (added to the scores), broadcastable to "
        f"[B, H, Q, K] = {list(full)} on {q.device}, K with all keys of the cache; got {got}"
    )
