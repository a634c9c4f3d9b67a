"""What is timed: phasor's calls by name, and what they are measured against: copies, and other libraries' functions."""

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

import torch
from torch import Tensor

from phasor import Rotation, apply_qk_norm_rotary, apply_rotary_qk, apply_rotary_qkv, rotate
from phasor.caches import apply_rotary_to_cache

from .llama import both
from .measure import CLONE, COPY, Calls, Work

Pair: TypeAlias = tuple[Tensor, Tensor]
Call: TypeAlias = Callable[[], Any]


def clones(q: Tensor, k: Tensor) -> Pair:
    return q.clone(), k.clone()


def copies(work: Work) -> Call:
    """A call that copies q and k into tensors that exist."""
    (q, k), (y, z) = (x := [t.detach() for t in work.pair]), clones(*x)
    return lambda: (y.copy_(q), z.copy_(k))


def backward(call: Call, inputs: Pair) -> Call:
    """Forward and backward, to the gradients of what goes in; a gradient lies in memory as its result does."""
    gradients = [torch.randn_like(y) for y in call()]
    return lambda: torch.autograd.grad(call(), inputs, gradients)


def _rotate(work: Work, heads: Pair | None = None, out: Pair | None = None) -> Call:
    """By the next positions at every call, which nothing may keep."""
    positions = cycle([work.positions + n for n in range(64)])
    heads = heads or work.pair
    return lambda: rotate(*heads, next(positions), work.spec, kernel=work.kernel, out=out)


def _apply(work: Work, heads: Pair | None = None, **options: Any) -> Call:
    return partial(apply_rotary_qk, *(heads or work.pair), work.rotation, kernel=work.kernel, **options)


def _in_place(make: Callable[..., Call]) -> Callable[[Work], Call]:
    return lambda work: make(work, here := clones(*work.pair), out=here)


def _rounded(work: Work) -> Call:
    """Every product is rounded, as most model code does."""
    spec = work.spec.replace(angles="float32", tables="activation")
    rotation, out = Rotation.at(spec, work.positions, dtype=work.dtype), clones(*work.pair)
    return partial(apply_rotary_qk, *work.pair, rotation, kernel=work.kernel, out=out)


def _flat(work: Work) -> Call:
    q, k = (x.transpose(1, 2).flatten(-2) for x in work.pair)
    return _apply(work, (q, k), tensor_format="bshd", num_heads=work.shape[1])


def _packed(work: Work, here: bool = False) -> Call:
    _, q_heads, k_heads, _, _ = work.shape
    (heads,) = work.heads(q_heads + 2 * k_heads)
    qkv = heads.transpose(1, 2).contiguous()
    options: Any = {"num_heads": q_heads, "kernel": work.kernel, "out": qkv if here else None}
    return partial(apply_rotary_qkv, qkv, work.rotation, **options)


def _cached(work: Work) -> Call:
    """Into pages of 16 tokens, one after the other; q to a tensor that exists."""
    batch, q_heads, k_heads, tokens, width = work.shape
    q, k, v = work.heads(q_heads, k_heads, k_heads)
    keys, values = (torch.zeros(-(-batch * tokens // 16), 16, k_heads, width, dtype=work.dtype) for _ in "kv")
    slots = torch.arange(batch * tokens).view(batch, tokens)
    rest: Any = {"kernel": work.kernel, "out": torch.empty_like(q)}
    call = partial(apply_rotary_to_cache, q, k, v, work.rotation, keys, values, slots, **rest)
    return lambda: (call(), keys, values)


def _backward_of(make: Callable[[Work], Call]) -> Callable[[Work], Call]:
    return lambda work: backward(make(work), work.pair)


def transformers_function(work: Work) -> Callable[..., Pair]:
    """Llama's function for halves, Cohere's for neighbours."""
    if work.interleaved:
        from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb
    else:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    function: Callable[..., Pair] = apply_rotary_pos_emb
    return function


def model_tables(work: Work) -> list[Tensor]:
    """cos and sin ``[batch or 1, tokens, channels]`` as models hand them over, in the dtype of q."""
    tables = work.rotation.cos, work.rotation.sin
    wide = [t.repeat_interleave(2, -1) if work.interleaved else torch.cat((t, t), -1) for t in tables]
    return [(t if t.ndim == 3 else t[None]).to(work.dtype) for t in wide]


def transformers(work: Work) -> Call:
    """Their function."""
    return partial(transformers_function(work), *work.pair, *model_tables(work))


def norm(work: Work) -> Calls:
    """Both ways. Heads lie as projections give them; both round before the weight, as Qwen 3 does."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    norm = Qwen3RMSNorm(work.shape[-1]).to(work.dtype).requires_grad_(False)
    q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in work.pair)
    function, (cos, sin) = transformers_function(work), model_tables(work)
    ours: Any = partial(apply_qk_norm_rotary, q, k, work.rotation, norm.weight, norm.weight)
    return {
        "transformers": lambda: function(norm(q), norm(k), cos, sin),
        "phasor": partial(ours, rounding="before_weight", kernel=work.kernel),
    }


LAW: dict[str, Callable[[Work], Call]] = {
    "positions": _rotate,
    "positions, out": lambda work: _rotate(work, out=clones(*work.pair)),
    "positions, in place": _in_place(_rotate),
    "tables": _apply,
    "tables, out": lambda work: _apply(work, out=clones(*work.pair)),
    "tables, in place": _in_place(_apply),
    "rounded tables, out": _rounded,
    "flat heads": _flat,
    "packed": _packed,
    "packed, in place": lambda work: _packed(work, here=True),
    "cache": _cached,
}
OURS: dict[str, Callable[[Work], Call]] = {
    "rotate": _rotate,
    "apply": _apply,
    "apply and back": _backward_of(_apply),
    "rotate and back": _backward_of(_rotate),
}
OTHERS: dict[str, Callable[[Work], Call]] = {
    CLONE: lambda work: partial(clones, *work.pair),
    COPY: copies,
    "x * 1.0": _backward_of(lambda work: lambda: tuple(x * 1.0 for x in work.pair)),
    "transformers": transformers,
}
WHOLE: dict[str, Callable[[Work], Calls]] = {"norm": norm, "llama": both}


def calls(work: Work) -> Calls:
    """What a case races: all ways in, or one call of phasor, and the unit or the peer that is measured."""
    case = work.case
    if case.call in WHOLE:
        return WHOLE[case.call](work)
    if case.call == "law":
        ours = {name: make(work) for name, make in LAW.items() if work.dtype != torch.float32 or "rounded" not in name}
        return {**ours, case.unit: OTHERS[case.unit](work)}
    other = case.unit if case.measured == "phasor" else case.measured
    return {"phasor": OURS[case.call](work), other: OTHERS[other](work)}
