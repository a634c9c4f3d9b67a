"""RMSNorm and rotation in the Triton kernel as operators of torch: a launch there, and one back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...rotation import Rotation
from ..autograd import Gradients, NormSide, by_autograd
from ..base import Pair
from ..norm import Norm
from ..order import ORDERS, Order, format_of
from .autograd import normed
from .operator import LIBRARY, described, rotation_of

ABOUT = "int[] about, float eps, bool unit_offset, str rounding, str tensor_format"


def why_not(norm: Norm) -> str:
    """What is not one launch there and one back: the compiler fuses its steps."""
    return "one launch normalises each head before it rotates" if norm.after or norm.across_heads else ""


def norm_and_rotate(q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm) -> Pair:
    """q and k normalised and rotated, as one node; as two where their batches have different shapes."""
    if k is not None and order.batch_of(q) != order.batch_of(k):
        of_k = norm._replace(q_weight=norm.k_weight)
        return norm_and_rotate(q, None, rotation, order, norm)[0], norm_and_rotate(k, None, rotation, order, of_k)[0]
    qk = [q] if k is None else [q, k]
    weights = [w for w in norm[: len(qk)] if w is not None]
    about = described(rotation), norm.eps, norm.unit_offset, norm.rounding, format_of(order)
    y, *z = torch.ops.phasor.norm_and_rotate_qk(qk, weights, [rotation.cos, rotation.sin], *about)
    return y, z[0] if z else None


def _norm_and_rotate(
    qk: Sequence[Tensor], weights: Sequence[Tensor], tables: Sequence[Tensor], about: list[int], *rest: Any
) -> list[Tensor]:
    *of_norm, tensor_format = rest
    k, norm = qk[1] if len(qk) == 2 else None, _norm(weights, *of_norm)
    return [y for y in normed(qk[0], k, rotation_of(tables, about), ORDERS[tensor_format], norm) if y is not None]


def _norm_and_rotate_back(
    grads: Sequence[Tensor], qk: Sequence[Tensor], weights: Sequence[Tensor], tables: Sequence[Tensor],
    about: list[int], *rest: Any,
) -> list[Tensor]:  # fmt: skip
    """Gradients of q and k, then of their weights."""
    from .norm_backward import rotate_back

    *of_norm, tensor_format = rest
    norm, rotation = _norm(weights, *of_norm), rotation_of(tables, about)
    gradients = rotate_back([*qk], [*grads], rotation, ORDERS[tensor_format], norm, bool(weights))
    return [x for x, _ in gradients] + [w for _, w in gradients if w is not None]


def _norm(weights: Sequence[Tensor], eps: float, unit_offset: bool, rounding: Any) -> Norm:
    of_q, of_k = (weights[0], weights[-1]) if weights else (None, None)
    return Norm(of_q, of_k, eps, unit_offset, rounding=rounding)


def _shapes(qk: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in qk]


def _shapes_back(grads: Any, qk: Sequence[Tensor], weights: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return _shapes([*qk, *weights])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    qk, weights, tables, *ctx.rest = inputs
    ctx.of_qk = len(qk)
    ctx.save_for_backward(*qk, *weights, *tables)


def _back(ctx: Any, grads: Sequence[Tensor | None]) -> Any:
    kept, of_qk = ctx.saved_tensors, ctx.of_qk
    qk, weights, tables = kept[:of_qk], kept[of_qk:-2], kept[-2:]
    if torch.is_grad_enabled():
        return *_back_again(grads, qk, weights, tables, *ctx.rest), [None, None], None, None, None, None, None
    given = [torch.zeros_like(x) if g is None else g for x, g in zip(qk, grads, strict=True)]
    gradients = torch.ops.phasor.norm_and_rotate_qk_back(given, [*qk], [*weights], [*tables], *ctx.rest)
    return gradients[:of_qk], gradients[of_qk:], [None, None], None, None, None, None, None


def _back_again(
    grads: Sequence[Tensor | None], qk: Sequence[Tensor], weights: Sequence[Tensor], tables: Sequence[Tensor],
    about: list[int], *rest: Any,
) -> tuple[list[Tensor | None], list[Tensor | None]]:  # fmt: skip
    """The same by the plain expression, which has a way back itself."""
    *of_norm, tensor_format = rest
    norm, rotation, order = _norm(weights, *of_norm), rotation_of(tables, about), ORDERS[tensor_format]
    gradients: list[Gradients] = []
    for x, weight, grad in zip(qk, weights or (None,) * len(qk), grads, strict=True):
        of_x, of_weight = x.requires_grad, weight is not None and weight.requires_grad
        if grad is None or not (of_x or of_weight):
            gradients.append((None, None))
        else:
            gradients.append(by_autograd(NormSide(x, weight, grad, of_x, of_weight), rotation, norm, order))
    return [of_x for of_x, _ in gradients], [of_weight for _, of_weight in gradients][: len(weights)]


LIBRARY.define(f"norm_and_rotate_qk(Tensor[] qk, Tensor[] weights, Tensor[] tables, {ABOUT}) -> Tensor[]")
LIBRARY.define(
    f"norm_and_rotate_qk_back(Tensor[] grads, Tensor[] qk, Tensor[] weights, Tensor[] tables, {ABOUT}) -> Tensor[]"
)
for device in ("CUDA", "CPU"):
    LIBRARY.impl("norm_and_rotate_qk", _norm_and_rotate, device)
    LIBRARY.impl("norm_and_rotate_qk_back", _norm_and_rotate_back, device)
torch.library.register_fake("phasor::norm_and_rotate_qk", _shapes, lib=LIBRARY)
torch.library.register_fake("phasor::norm_and_rotate_qk_back", _shapes_back, lib=LIBRARY)
torch.library.register_autograd("phasor::norm_and_rotate_qk", _back, setup_context=_keep, lib=LIBRARY)
