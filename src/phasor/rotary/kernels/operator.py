"""Kernels as operators of torch, in code that torch.compile makes: `native` on a CPU, `triton` on a GPU.

On a CPU it is for half precision: what the compiler's own code costs there is 3 to 4 times a copy, because it converts
to and from half precision value by value. On a GPU it is for many tokens (`triton_operator`). Everywhere else the plain
expression is better, which the compiler fuses with what stands around it.
"""

from typing import Any

import torch
from torch import Tensor

from ...support.tracing import exporting, known, mapped
from ..rotation import Rotation
from .base import PLAIN, Angles, Kernel, Pair, into, tables_of, tensors_of
from .native import kernel
from .norm import Norm
from .order import ORDERS, Order, format_of
from .reference import Reference
from .triton import norm_operator, operator
from .triton.operator import described, layout_of

HALF = (torch.bfloat16, torch.float16)
FEW = 2**19  # elements of q below which calling an operator costs more than it saves


class Operator(Kernel):
    """One node in the graph of a compiler, with a gradient of its own."""

    name = "operator"
    about = "compiled code, as one node of the graph: half precision on a CPU (native), many tokens on a GPU (triton)"

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        if not torch.compiler.is_dynamo_compiling() or exporting():
            return "it is for code that torch.compile makes; exported programs keep the plain expression"
        if mapped() or not all(type(x) in PLAIN for x in (q, k, *tensors_of(angles)) if x is not None):
            return "function transforms and tensor subclasses have no rule for an operator"
        if operator.is_for(q):
            return operator.why_not(q, k, angles)
        if kernel.MISSING:
            return kernel.MISSING
        if q.device.type != "cpu" or q.dtype not in HALF:
            return f"a compiler's own code is better for {q.dtype} on {q.device}"
        if not known(q.numel() >= FEW):
            return f"a compiler's own code is sooner done with fewer than {FEW:,} elements"
        return kernel.unsuited(q, angles)

    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        if operator.is_for(q):
            return into(out, *operator.rotate(q, k, angles, order))
        rotation = tables_of(angles)
        given = (rotation.cos, rotation.sin, described(rotation), format_of(order), False)
        y = torch.ops.phasor.rotate(q, *given)
        z = None if k is None else torch.ops.phasor.rotate(k, *given)
        return into(out, y, z)

    def why_not_norm(self, q: Tensor, k: Tensor | None, norm: Norm) -> str:
        return norm_operator.why_not(norm) if operator.is_for(q) else ""

    def norm_and_rotate(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm, out: Pair | None
    ) -> Pair:
        if not operator.is_for(q) or rotation.promoted or rotation.cos.dtype.itemsize == 2:
            return super().norm_and_rotate(q, k, rotation, order, norm, out)
        return into(out, *norm_operator.norm_and_rotate(q, k, rotation, order, norm))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, about: list[int], tensor_format: str, transposed: bool) -> Tensor:
    rotation = Rotation(cos=cos, sin=sin, layout=layout_of(*about[:6]), per_head=bool(about[6]))
    done = kernel._native and kernel._native.apply(x, None, rotation, tensor_format, transposed, None, None, None)
    if done is None:
        rotation = rotation.transpose() if transposed else rotation
        done = Reference().rotate(x, None, rotation, ORDERS[tensor_format], None)
    y: Tensor = done[0]
    return y


def _shape(x: Tensor, cos: Tensor, sin: Tensor, about: list[int], tensor_format: str, transposed: bool) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, cos, sin, *ctx.rest = inputs
    if any(ctx.needs_input_grad[1:3]):
        raise ValueError(
            "cos and sin must need no gradient in torch.ops.phasor.rotate, which has none for them; detach them, or "
            "train their frequencies in the graph before phasor.fuse"
        )
    ctx.save_for_backward(cos, sin)


def _back(ctx: Any, grad: Tensor) -> Any:
    about, tensor_format, transposed = ctx.rest
    rotated = torch.ops.phasor.rotate(grad, *ctx.saved_tensors, about, tensor_format, not transposed)
    return rotated, None, None, None, None, None


LIBRARY = torch.library.Library("phasor", "DEF")
LIBRARY.define("rotate(Tensor x, Tensor cos, Tensor sin, int[] about, str tensor_format, bool transposed) -> Tensor")
LIBRARY.impl("rotate", _rotate, "CPU")
torch.library.register_fake("phasor::rotate", _shape, lib=LIBRARY)
torch.library.register_autograd("phasor::rotate", _back, setup_context=_keep, lib=LIBRARY)
