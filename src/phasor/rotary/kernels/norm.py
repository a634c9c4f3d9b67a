"""RMSNorm of queries and keys in plain PyTorch: what a kernel that does it in one pass with the rotation means."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Rounding = Literal["once", "between", "before_weight"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
Pair = tuple[Tensor, Tensor | None]


class Norm(NamedTuple):
    """``x / sqrt(mean(x ** 2) + eps) * weight`` over the channels of every head, or over all heads of a token.

    - weights of q and of k: ``[head_dim]``, or ``[heads * head_dim]`` if ``across_heads``; None multiplies nothing.
    - ``unit_offset``: what multiplies is ``1 + weight``.
    - ``after``: the heads are rotated first.
    - ``rounding``: ``"once"``, at the end; ``"between"``, also what comes first of the norm and the rotation;
      ``"before_weight"``, also the normalised heads before the weight multiplies them.
    """

    q_weight: Tensor | None
    k_weight: Tensor | None
    eps: float
    unit_offset: bool = False
    across_heads: bool = False
    after: bool = False
    rounding: Rounding = "once"


def normed(x: Tensor, weight: Tensor | None, norm: Norm, heads: int, dtype: torch.dtype) -> Tensor:
    """``x`` normalised; ``heads`` is its axis of heads, ``dtype`` the one to round to. Float32 at least is computed.

    The order in which squares are added is that of the place where it runs.
    """
    wide = _widened(x)
    if norm.across_heads:
        mean = wide.movedim(heads, -2).flatten(-2).square().mean(-1)[..., None, None].movedim(-2, heads)
    else:
        mean = wide.square().mean(-1, keepdim=True)
    y = wide * torch.rsqrt(mean + norm.eps)
    if norm.rounding == "before_weight":
        y = y.to(dtype)
    if weight is not None:
        factor = weight.to(wide.dtype)
        if norm.unit_offset:
            factor = 1.0 + factor
        if norm.across_heads:
            factor = factor.view(x.shape[heads], *[1] * (-2 - heads), x.shape[-1])
        y = y * factor
    return y if norm.rounding == "once" else y.to(dtype)


def norm_and_rotate(
    rotate: Callable[[Tensor, Tensor | None], Pair], q: Tensor, k: Tensor | None, norm: Norm, heads: int
) -> Pair:
    """q and k normalised, then rotated, or the other way round; not yet rounded where that is to happen once."""
    if not norm.after:
        return rotate(*_both(q, k, norm, heads, q.dtype))
    if norm.rounding == "once":
        q, k = _widened(q), None if k is None else _widened(k)
    y, z = rotate(q, k)
    return _both(y, z, norm, heads, y.dtype)


def _both(q: Tensor, k: Tensor | None, norm: Norm, heads: int, dtype: torch.dtype) -> Pair:
    y = normed(q, norm.q_weight, norm, heads, dtype)
    return y, None if k is None else normed(k, norm.k_weight, norm, heads, dtype)


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
