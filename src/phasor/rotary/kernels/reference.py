"""The definition of the rotation, in plain PyTorch: traceable, differentiable, any dtype and strides."""

from torch import Tensor

from ..tables import Phases
from . import inlined
from .base import Angles, Kernel, Pair, into, tables_of
from .expression import rotated
from .order import Order


class Reference(Kernel):
    """One expression for q and one for k: all other kernels must give its results."""

    name = "reference"
    about = "plain PyTorch, wherever PyTorch runs: compiled, transformed, differentiated, on every device"

    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        return ""

    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        if inlined.is_better(q, k, angles):
            assert isinstance(angles, Phases)
            return into(
                out, inlined.rotated(q, angles, order), None if k is None else inlined.rotated(k, angles, order)
            )
        rotation = tables_of(angles)
        layout, promoted = rotation.layout, rotation.promoted
        cos, sin = order.line_up((rotation.cos, rotation.sin), rotation.per_head)
        second = None if rotation.second is None else order.line_up(rotation.second, rotation.per_head)
        y = rotated(q, cos, sin, layout, promoted, second)
        z = None if k is None else rotated(k, cos, sin, layout, promoted, second)
        return into(out, y, z)


__all__ = ["Reference", "rotated"]
