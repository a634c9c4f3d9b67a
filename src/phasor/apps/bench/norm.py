"""RMSNorm of q and k with the rotation, beside transformers' module and function for them, one after the other."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...rotary.apply import apply_qk_norm_rotary
from .case import Case, Setting, at_least
from .large import WIDTH, prefill
from .race import Calls
from .small import PLACE, TOKEN
from .transformers import doubled, missing, theirs


def _beside(setting: Setting, q: Tensor, k: Tensor, positions: Tensor) -> Calls:
    """Heads lie behind one another, as projections give them. Both round before the weight, as Qwen 3 does."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    norm = Qwen3RMSNorm(WIDTH).to(setting.dtype)
    rotation = setting.rotation(WIDTH, positions)
    cos, sin = doubled(setting, rotation)
    q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k))
    if torch.is_grad_enabled():
        q, k = q.requires_grad_(), k.requires_grad_()
    turn = theirs(setting.interleaved)
    weight = norm.weight if torch.is_grad_enabled() else norm.weight.detach()
    ours: Any = partial(apply_qk_norm_rotary, rounding="before_weight", kernel=setting.kernel)
    return {
        "transformers": partial(_in_turn, q, k, norm, partial(turn, cos=cos, sin=sin)),
        "phasor": partial(ours, q, k, rotation, weight, weight),
    }


def _in_turn(q: Tensor, k: Tensor, norm: Any, turn: Any) -> tuple[Tensor, Tensor]:
    pair: tuple[Tensor, Tensor] = turn(norm(q), norm(k))
    return pair


def _prefill(setting: Setting) -> Calls:
    return _beside(setting, *prefill(setting))


def _token(setting: Setting) -> Calls:
    return _beside(setting, *setting.pair(1, 32, 8, 1, WIDTH), torch.tensor([PLACE]))


def _back(setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    grads = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype) for x in (q, k)]
    calls: dict[str, Any] = dict(_beside(setting, q, k, positions))
    return {name: partial(_gradients, call(), call.args, grads) for name, call in calls.items()}


def _gradients(turned: Any, given: tuple[Any, ...], grads: list[Tensor]) -> tuple[Tensor, ...]:
    """Those of q and k; that of the weight is formed beside them."""
    weight = given[2].weight if isinstance(given[2], torch.nn.Module) else given[3]
    return torch.autograd.grad(turned, (*given[:2], weight), grads, retain_graph=True)[:2]


NORM = (
    Case(
        "norm",
        "transformers' `Qwen3RMSNorm` and `apply_rotary_pos_emb` one after the other at the sizes of `prefill`, by "
        "tables that exist, in units of `apply_qk_norm_rotary`",
        _prefill,
        measured="transformers",
        unit="phasor",
        goals=at_least(3),
        large=True,
        why_not=missing,
    ),
    Case(
        "norm-back",
        "the backward passes of both, to the gradients of q, k and the weight",
        _back,
        measured="transformers",
        unit="phasor",
        goals=at_least(2),
        large=True,
        gradient=True,
        why_not=missing,
    ),
    Case(
        "norm-token",
        f"`norm` for {TOKEN}",
        _token,
        measured="transformers",
        unit="phasor",
        goals=at_least(3),
        repeat=200,
        why_not=missing,
    ),
)
