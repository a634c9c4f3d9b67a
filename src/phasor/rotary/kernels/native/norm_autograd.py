"""RMSNorm and rotation on the native kernel as one step of autograd: the way back to q, k and the weights."""

from typing import Any

import torch
from torch import Tensor

from ...rotation import Rotation
from ..base import Pair
from ..norm import Norm
from ..order import ORDERS, Order
from ..reference import Reference
from .extension import MODULE

PIECES = 32  # sums that the extension makes for the gradient of a weight, in float64
Gradients = tuple[Tensor | None, Tensor | None]  # of a tensor and of its weight


def only_wanted(ctx: Any, y: Tensor, z: Tensor | None) -> Pair:
    """The results, marked where neither the tensor nor its weight needs a gradient."""
    of_q, of_k, of_q_weight, of_k_weight, *_ = ctx.needs_input_grad
    for rotated, learns in ((y, of_q or of_q_weight), (z, of_k or of_k_weight)):
        if rotated is not None and not learns:
            ctx.mark_non_differentiable(rotated)
    return y, z


class NormAndRotate(torch.autograd.Function):
    """Keeps q, k, weights and tables. Its way back is one pass, or by the plain expression if it has one itself."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor | None, q_weight: Tensor | None, k_weight: Tensor | None, rotation: Rotation,
        norm: Norm, tensor_format: str,
    ) -> Any:  # fmt: skip
        ctx.save_for_backward(q, k, q_weight, k_weight, rotation.cos, rotation.sin)
        ctx.set_materialize_grads(False)
        ctx.rest = rotation, norm, tensor_format
        pair = MODULE.norm_and_rotate(q, k, rotation, tensor_format, False, None, None, norm)
        y, z = pair or Reference().norm_and_rotate(q, k, rotation, ORDERS[tensor_format], norm, None)
        return only_wanted(ctx, y, z)

    @staticmethod
    def backward(ctx: Any, of_y: Tensor | None, of_z: Tensor | None) -> Any:  # type: ignore[override]
        rotation, norm, tensor_format = ctx.rest
        q, k, q_weight, k_weight, cos, sin = ctx.saved_tensors  # which refuses those that were written to since
        about = rotation.replace(cos=cos, sin=sin), norm, tensor_format
        of_q, of_k, of_q_weight, of_k_weight, *_ = ctx.needs_input_grad
        d_q, d_q_weight = _back(of_y, q, q_weight, of_q, of_q_weight, *about)
        d_k, d_k_weight = _back(of_z, k, k_weight, of_k, of_k_weight, *about)
        return d_q, d_k, d_q_weight, d_k_weight, None, None, None


def learn(q: Tensor, k: Tensor | None, rotation: Rotation, norm: Norm, tensor_format: str) -> Pair:
    """q and k normalised and rotated, with a way back."""
    pair: Pair = NormAndRotate.apply(q, k, norm.q_weight, norm.k_weight, rotation, norm, tensor_format)
    return pair


def _back(
    grad: Tensor | None, x: Tensor, weight: Tensor | None, of_x: bool, of_weight: bool, rotation: Rotation, norm: Norm,
    tensor_format: str,
) -> Gradients:  # fmt: skip
    if grad is None or not (of_x or of_weight):
        return None, None
    norm = norm._replace(q_weight=weight, k_weight=None)
    if torch.is_grad_enabled():
        return by_autograd(grad, x, weight, of_x, of_weight, rotation, norm, ORDERS[tensor_format])
    sums = None
    if of_weight and weight is not None:
        sums = torch.zeros(PIECES, weight.numel(), dtype=torch.float64)
    done = MODULE.back(grad, None, rotation, tensor_format, True, None, None, norm, x, None, sums, None)
    if done is None:  # a norm after the rotation, or batched gradients
        return by_autograd(grad, x, weight, of_x, of_weight, rotation, norm, ORDERS[tensor_format])
    return done[0], None if sums is None or weight is None else sums.sum(0).to(weight.dtype)


def by_autograd(
    grad: Tensor, x: Tensor, weight: Tensor | None, of_x: bool, of_weight: bool, rotation: Rotation, norm: Norm,
    order: Order,
) -> Gradients:  # fmt: skip
    """By autograd of the plain expression; what it gives can be differentiated again where that is wanted."""
    again = torch.is_grad_enabled()
    if not again:
        x, weight = (
            x.detach().requires_grad_(of_x),
            None if weight is None else weight.detach().requires_grad_(of_weight),
        )
    with torch.enable_grad():
        norm = norm._replace(q_weight=weight)
        y, _ = Reference().norm_and_rotate(x, None, rotation, order, norm, None)
    wanted = [t for t, is_wanted in ((x, of_x), (weight, of_weight)) if is_wanted and t is not None]
    gradients = iter(torch.autograd.grad(y, wanted, grad, create_graph=again))
    return next(gradients) if of_x else None, next(gradients) if of_weight else None
