"""A rotation, alone or after a norm, as one step of autograd: the same step for the kernels in C and in Triton."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..rotation import Rotation
from .base import Pair
from .norm import Norm
from .order import Order
from .reference import Reference

Gradients = tuple[Tensor | None, Tensor | None]  # of a tensor and of its weight


class Rotate(torch.autograd.Function):
    """q and k rotated at once by ``turn(q, k, kept, transposed)``; its way back is itself, transposed.

    Keeps ``kept``, tables or positions, and nothing of q and k. A hook may bring others in their place.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor | None, turn: Callable[..., Pair], kept: tuple[Tensor, ...], transposed: bool
    ) -> Pair:
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        ctx.rest = turn, not transposed
        y, z = turn(q, k, kept, transposed)
        return _marked(ctx, y, z, *ctx.needs_input_grad[:2])

    @staticmethod
    def backward(ctx: Any, of_q: Tensor | None, of_k: Tensor | None) -> Any:  # type: ignore[override]
        turn, transposed = ctx.rest
        kept = ctx.saved_tensors  # which refuses tables that were written to since
        grads = [g if wanted else None for g, wanted in zip((of_q, of_k), ctx.needs_input_grad, strict=False)]
        given = [g for g in grads if g is not None]
        back = iter(turn(given[0], given[1] if len(given) == 2 else None, kept, transposed) if given else ())
        return *(None if g is None else next(back) for g in grads), None, None, None


class NormSide(NamedTuple):
    """One of q and k: its weight, the gradient of its result, and which gradients are wanted."""

    x: Tensor
    weight: Tensor | None
    of_result: Tensor
    of_x: bool
    of_weight: bool


class NormAndRotate(torch.autograd.Function):
    """Keeps q, k, weights and tables. Its way back is one pass, ``back``, or the plain expression if it has one itself.

    ``done`` are q and k, normalised and rotated, by ``(q, k, rotation, order, norm)``.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor | None, q_weight: Tensor | None, k_weight: Tensor | None, rotation: Rotation,
        norm: Norm, order: Order, done: Callable[..., Pair], back: Callable[..., list[Gradients]],
    ) -> Pair:  # fmt: skip
        ctx.save_for_backward(q, k, q_weight, k_weight, rotation.cos, rotation.sin)
        ctx.set_materialize_grads(False)
        ctx.rest = rotation, norm, order, back
        y, z = done(q, k, rotation, order, norm)
        of_q, of_k, of_q_weight, of_k_weight, *_ = ctx.needs_input_grad
        return _marked(ctx, y, z, of_q or of_q_weight, of_k or of_k_weight)

    @staticmethod
    def backward(ctx: Any, of_y: Tensor | None, of_z: Tensor | None) -> Any:  # type: ignore[override]
        q, k, q_weight, k_weight, cos, sin = ctx.saved_tensors  # which refuses those that were written to since
        rotation, norm, order, back = ctx.rest
        of_q, of_k, of_q_weight, of_k_weight, *_ = ctx.needs_input_grad
        both = (q, q_weight, of_y, of_q, of_q_weight), (k, k_weight, of_z, of_k, of_k_weight)
        wanted = [of_result is not None and (of_x or of_weight) for _, _, of_result, of_x, of_weight in both]
        sides = [NormSide(*of) for of, is_wanted in zip(both, wanted, strict=True) if is_wanted]  # type: ignore[arg-type]
        about = rotation.replace(cos=cos, sin=sin), norm, order
        found = iter([by_autograd(s, *about) for s in sides] if torch.is_grad_enabled() else back(sides, *about))
        (d_q, d_q_weight), (d_k, d_k_weight) = (next(found) if is_wanted else (None, None) for is_wanted in wanted)
        return d_q, d_k, d_q_weight, d_k_weight, None, None, None, None, None


def by_autograd(side: NormSide, rotation: Rotation, norm: Norm, order: Order) -> Gradients:
    """By autograd of the plain expression; what it gives can be differentiated again where that is wanted."""
    x, weight, grad, of_x, of_weight = side
    again = torch.is_grad_enabled()
    if not again:
        x = x.detach().requires_grad_(of_x)
        weight = None if weight is None else weight.detach().requires_grad_(of_weight)
    with torch.enable_grad():
        y, _ = Reference().norm_and_rotate(
            x, None, rotation, order, norm._replace(q_weight=weight, k_weight=None), None
        )
    wanted = [t for t, is_wanted in ((x, of_x), (weight, of_weight)) if is_wanted and t is not None]
    gradients = iter(torch.autograd.grad(y, wanted, grad, create_graph=again))
    return next(gradients) if of_x else None, next(gradients) if of_weight else None


def _marked(ctx: Any, y: Tensor, z: Tensor | None, of_y: bool, of_z: bool) -> Pair:
    """The results, marked where nothing needs their gradient."""
    ctx.mark_non_differentiable(*(x for x, wanted in ((y, of_y), (z, of_z)) if x is not None and not wanted))
    return y, z
