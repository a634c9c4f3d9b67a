"""Stand-ins for the functions with which models turn q and k: the same arguments and results, turned by phasor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.apply import TensorFormat, apply_rotary_qk
from ...rotary.layout import Layout
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from ...support.tracing import transformed
from .signatures import CALLS, order_of
from .swap import with_globals
from .tables import Form, per_pair


@dataclass(frozen=True)
class Turning:
    """How one function of a model turns: plain data, equal for all specs whose pairs lie alike.

    - ``parameters`` and the default ``unsqueeze_dim`` are those of the function; ``order`` is the order of heads and
      tokens where it has no such parameter; None: heads go to axis 1 of its tables, batched or not.
    - ``form``: that of the tables it is given; ``layout``: that of the heads.
    - ``promoted``: the result has the wider dtype of heads and tables; ``widened``: tables are widened before the
      products; ``backwards``: it turns by minus the angle of its tables; ``sheared``: the second members of its pairs
      have angles of their own; ``latest``: queries that are fewer than the keys take the last rows of the tables.
    """

    parameters: tuple[str, ...]
    unsqueeze_dim: int
    order: TensorFormat | None
    form: Form
    layout: Layout
    promoted: bool = False
    widened: bool = False
    backwards: bool = False
    sheared: bool = False
    latest: bool = False
    kernel: str = "auto"

    @classmethod
    def of(
        cls,
        spec: RotarySpec,
        parameters: tuple[str, ...],
        unsqueeze_dim: int,
        order: TensorFormat | None,
        form: Form,
        kernel: str,
    ) -> "Turning":
        """The turning of the pairs of ``spec``."""
        return cls(
            parameters, unsqueeze_dim, order, form, spec.layout,
            promoted=spec.angles != "exact" and spec.tables in ("promoted", "activation"),
            widened=spec.tables == "rounded", backwards=spec.reverse, sheared=spec.second is not None, kernel=kernel,
        )  # fmt: skip

    def function(self, fused: Any = None) -> Callable:
        """The stand-in: it takes and returns what the model's own function does. ``fused`` normalises, too."""
        kernel = self.kernel

        def turn(
            q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, order: TensorFormat | None
        ) -> tuple[Tensor, Tensor | None]:
            order = order or order_of(cos, 1)
            # tables of another dtype than the heads: dots3's, for the layers that it computes in float32
            promoted = self.promoted and cos.dtype != q.dtype
            if fused is not None:
                return fused.turn(q, k, self._rotation(cos, sin, q.shape[-1], promoted), order, kernel)
            if self.latest and k is not None and q.shape[-2] < k.shape[-2]:
                last = slice(-q.shape[-2], None)
                return turn(q, None, cos[..., last, :], sin[..., last, :], order)[0], turn(k, None, cos, sin, order)[0]
            if k is not None and (k.dtype, k.shape[-1]) != (q.dtype, q.shape[-1]):
                return turn(q, None, cos, sin, order)[0], turn(k, None, cos, sin, order)[0]
            rotation = self._rotation(cos, sin, q.shape[-1], promoted)
            return apply_rotary_qk(q, k, rotation, tensor_format=order, kernel=kernel)

        made: Callable = CALLS[self.parameters](turn, self.unsqueeze_dim, self.order)
        return made

    def _rotation(self, cos: Tensor, sin: Tensor, width: int, promoted: bool) -> Rotation:
        """The rotation of heads of that width, formed by the first layer that is given these tables."""
        if not _keeps(cos, sin):
            return self._formed(cos, sin, width, promoted)
        now = (self, width, promoted, cos._version, sin._version)
        kept = getattr(cos, KEPT, None)
        if kept is None or kept[0] != now or kept[1] is not sin:
            kept = (now, sin, self._formed(cos, sin, width, promoted, kept=True))
            setattr(cos, KEPT, kept)
        made: Rotation = kept[2]
        return made

    def _formed(self, cos: Tensor, sin: Tensor, width: int, promoted: bool, kept: bool = False) -> Rotation:
        whole = self.layout
        more: dict[str, Any] = {}
        if self.sheared:
            more["second"] = tuple(t[..., t.shape[-1] // 2 :] for t in (cos, sin))
        cos, sin = per_pair(cos, self.form, whole.blocks), per_pair(sin, self.form, whole.blocks)
        if kept:  # copies, because a view would keep the tensor that keeps it
            cos, sin = cos.clone(), sin.clone()
            more = {name: tuple(t.clone() for t in tables) for name, tables in more.items()}
        if self.widened:
            cos, sin = cos.float(), sin.float()
            more = {name: tuple(t.float() for t in tables) for name, tables in more.items()}
        layout = whole if width == whole.head_dim else replace(whole, head_dim=width)  # heads may be cut before
        sin = -sin if self.backwards else sin
        return Rotation(cos=cos, sin=sin, layout=layout, promoted=promoted, **more)


KEPT = "_phasor_rotation"  # the attribute of a table under which the rotation that it makes is kept, while it lives


def _keeps(cos: Tensor, sin: Tensor) -> bool:
    """Whether a table can hold what was made of it, and be seen to change."""
    return not (
        transformed()
        or type(cos) is not Tensor
        or (torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad))
        or cos.is_inference()
        or sin.is_inference()
    )


@dataclass(frozen=True)
class TurningModule:
    """Methods for a module that turns: copies of its own, in which the stand-ins have the names of the functions."""

    turnings: tuple[tuple[str, Turning], ...]  # name of the function -> how it turns
    names: tuple[str, ...]  # methods that call them

    def stand_ins(self, cls: type[nn.Module], fused: Any = None) -> dict[str, Callable]:
        """For each function, by its name, what is called instead."""
        return {name: turning.function(fused) for name, turning in self.turnings}

    def methods(self, cls: type[nn.Module], fused: Any = None) -> dict[str, Callable]:
        changes = self.stand_ins(cls, fused)
        own = {name: staticmethod(function) for name, function in changes.items() if hasattr(cls, name)}
        return own | {name: _copied(cls, name, changes) for name in self.names}


@dataclass(frozen=True)
class TurningMethod:
    """A method that turns, of a module that calls no function for it."""

    name: str
    turning: Turning

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        return {self.name: self.turning.function()}


def _copied(cls: type[nn.Module], name: str, changes: dict[str, Callable]) -> Any:
    method = next(vars(k)[name] for k in cls.__mro__ if name in vars(k))
    if isinstance(method, FunctionType):
        return with_globals(method, changes)
    return type(method)(with_globals(method.__func__, changes))  # a static or class method
