"""RMSNorm and rotation in the Triton kernel as one step of autograd: one launch there, and one back."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....support.tracing import watched
from ...rotation import Rotation
from ..base import is_batched, unseen
from ..native.norm_autograd import Gradients, by_autograd, only_wanted
from ..norm import Norm
from ..order import Order
from .autograd import normed


class NormSide(NamedTuple):
    """One of q and k: its weight, the gradient of its result, and which gradients are wanted."""

    x: Tensor
    weight: Tensor | None
    of_result: Tensor
    of_x: bool
    of_weight: bool


class TritonNormAndRotate(torch.autograd.Function):
    """Keeps q, k, weights and tables. Its way back is one launch, or the plain expression if it has one itself."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor | None, q_weight: Tensor | None, k_weight: Tensor | None, rotation: Rotation,
        norm: Norm, order: Order,
    ) -> Any:  # fmt: skip
        ctx.save_for_backward(q, k, q_weight, k_weight, rotation.cos, rotation.sin)
        ctx.set_materialize_grads(False)
        ctx.rest = rotation, norm, order
        y, z = normed(q, k, rotation, order, norm)
        return only_wanted(ctx, y, z)

    @staticmethod
    def backward(ctx: Any, of_y: Tensor | None, of_z: Tensor | None) -> Any:  # type: ignore[override]
        q, k, q_weight, k_weight, cos, sin = ctx.saved_tensors  # which refuses those that were written to since
        rotation, norm, order = ctx.rest
        of_q, of_k, of_q_weight, of_k_weight, *_ = ctx.needs_input_grad
        both = {
            name: NormSide(x, weight, of, of_x, of_weight)
            for name, x, weight, of, of_x, of_weight in (
                ("q", q, q_weight, of_y, of_q, of_q_weight), ("k", k, k_weight, of_z, of_k, of_k_weight)
            )
            if of is not None and (of_x or of_weight)
        }  # fmt: skip
        about = rotation.replace(cos=cos, sin=sin), norm, order
        by_name = dict(zip(both, _back(list(both.values()), *about), strict=True))
        (d_q, d_q_weight), (d_k, d_k_weight) = (by_name.get(name, (None, None)) for name in "qk")
        return d_q, d_k, d_q_weight, d_k_weight, None, None, None


def _back(sides: list[NormSide], rotation: Rotation, norm: Norm, order: Order) -> list[Gradients]:
    if torch.is_grad_enabled() or watched() or any(unseen(s.of_result, None) or is_batched(s.of_result) for s in sides):
        return [
            by_autograd(s.of_result, s.x, s.weight, s.of_x, s.of_weight, rotation, norm, order) for s in sides
        ]  # fmt: skip
    if not sides:
        return []
    from .norm_backward import rotate_back

    weights = [s.weight for s in sides]
    norm = norm._replace(q_weight=weights[0], k_weight=weights[-1])
    of_weights = any(s.of_weight for s in sides)
    gradients = rotate_back([s.x for s in sides], [s.of_result for s in sides], rotation, order, norm, of_weights)
    return [
        (x if s.of_x else None, weight if s.of_weight else None)
        for s, (x, weight) in zip(sides, gradients, strict=True)
    ]
