"""What is timed: phasor's calls by name, and what they are measured against: copies, and other libraries' functions."""

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

import torch
from torch import Tensor

from phasor import Rotation, apply_qk_norm_rotary, apply_rotary_qk, rotate

from .llama import both
from .measure import COPY, Calls, Work

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


def _rotate(work: Work, out: Pair | None = None) -> Call:
    return partial(rotate, *work.pair, work.positions, work.spec, kernel=work.kernel, out=out)


def _apply(work: Work, **options: Any) -> Call:
    return partial(apply_rotary_qk, *work.pair, work.rotation, kernel=work.kernel, **options)


def _rotate_in_place(work: Work) -> Call:
    here = clones(*work.pair)
    return partial(rotate, *here, work.positions, work.spec, kernel=work.kernel, out=here)


def _decoding(work: Work) -> Call:
    """By the next positions at every call: decoding has new ones at every step, which nothing may keep."""
    positions = cycle([work.positions + n for n in range(64)])
    return lambda: rotate(*work.pair, next(positions), work.spec, kernel=work.kernel)


def _rounded(work: Work) -> Call:
    spec = work.spec.replace(angles="float32", tables="activation")
    rotation, out = Rotation.at(spec, work.positions, dtype=work.dtype), clones(*work.pair)
    return partial(apply_rotary_qk, *work.pair, rotation, kernel=work.kernel, out=out)


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


OURS: dict[str, Callable[[Work], Call]] = {
    "rotate": _rotate,
    "rotate out": lambda work: _rotate(work, clones(*work.pair)),
    "rotate in place": _rotate_in_place,
    "rotate by the next positions": _decoding,
    "apply": _apply,
    "apply rounded": _rounded,
    "apply and back": _backward_of(_apply),
    "rotate and back": _backward_of(_rotate),
}
OTHERS: dict[str, Callable[[Work], Call]] = {
    "clone": lambda work: partial(clones, *work.pair),
    "two clones": lambda work: partial(clones, *work.pair),
    COPY: copies,
    "x * 1.0": _backward_of(lambda work: lambda: tuple(x * 1.0 for x in work.pair)),
    "transformers": transformers,
}
WHOLE: dict[str, Callable[[Work], Calls]] = {"norm": norm, "llama": both}


def calls(work: Work) -> Calls:
    """What a case races: phasor's call, and its unit or the peer that is measured."""
    case = work.case
    if case.call in WHOLE:
        return WHOLE[case.call](work)
    other = case.unit if case.measured == "phasor" else case.measured
    return {"phasor": OURS[case.call](work), other: OTHERS[other](work)}
