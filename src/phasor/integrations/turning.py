"""Stand-ins for the functions with which models turn q and k: the same arguments and results, turned by phasor."""

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ..apply import TensorFormat, apply_rotary
from ..rotation import Rotation
from ..spec import RotarySpec
from .calls import CALLS, order_of
from .swap import with_globals
from .tables import Layout, per_pair


@dataclass(frozen=True)
class Turning:
    """How one function of a model turns: plain data, equal for all specs whose pairs lie alike.

    - ``parameters`` and the default ``unsqueeze_dim`` are those of the function; ``order`` is the order of heads and
      tokens where it has no such parameter; None: heads go to axis 1 of its tables, batched or not.
    - ``layout``: that of the tables it is given; ``flags``: the fields of a `Rotation` besides its tensors.
    - ``widened``: tables are widened before the products; ``backwards``: it turns by minus the angle of its tables;
      ``sheared``: the second members of its pairs have angles of their own.
    """

    parameters: tuple[str, ...]
    unsqueeze_dim: int
    order: TensorFormat | None
    layout: Layout
    flags: tuple[tuple[str, Any], ...]
    widened: bool = False
    backwards: bool = False
    sheared: bool = False

    @classmethod
    def of(
        cls,
        spec: RotarySpec,
        parameters: tuple[str, ...],
        unsqueeze_dim: int,
        order: TensorFormat | None,
        layout: Layout,
    ) -> "Turning":
        """The turning of the pairs of ``spec``."""
        return cls(
            parameters, unsqueeze_dim, order, layout, _flags(spec), spec.tables == "rounded",
            spec.reverse, spec.second is not None,
        )  # fmt: skip

    def function(self) -> Callable:
        """The stand-in: it takes and returns what the model's own function does."""
        flags = dict(self.flags)
        layout, blocks = self.layout, flags["blocks"]
        widened, backwards, sheared = self.widened, self.backwards, self.sheared

        def turn(x: Tensor, cos: Tensor, sin: Tensor, order: TensorFormat | None) -> Tensor:
            order = order or order_of(cos, 1)
            more: dict[str, Any] = {}
            if sheared:
                more["second"] = tuple(t[..., t.shape[-1] // 2 :] for t in (cos, sin))
            cos, sin = per_pair(cos, layout, blocks), per_pair(sin, layout, blocks)
            if widened:
                cos, sin = cos.float(), sin.float()
            return apply_rotary(x, Rotation(cos, -sin if backwards else sin, **flags, **more), tensor_format=order)

        made: Callable = CALLS[self.parameters](turn, self.unsqueeze_dim, self.order)
        return made


def _flags(spec: RotarySpec) -> tuple[tuple[str, Any], ...]:
    """The fields of a rotation of ``spec`` that do not depend on positions; heads may be cut before they are turned."""
    if spec.learned:
        spec = spec.replace(learned=False)
    axes = spec.axes.count
    nowhere = torch.zeros((axes, 1) if axes > 1 else 1, dtype=torch.int64, device="cpu")
    at = Rotation.at(spec, nowhere, 1 if spec.length_dependent else None)
    plain = {name: value for name, value in at._asdict().items() if isinstance(value, bool | int)}
    return tuple((plain | {"head_dim": None, "magnitude": 1.0}).items())


@dataclass(frozen=True)
class TurningModule:
    """Methods for a module that turns: copies of its own, in which the stand-ins have the names of the functions."""

    turnings: tuple[tuple[str, Turning], ...]  # name of the function -> how it turns
    names: tuple[str, ...]  # methods that call them

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        changes = {name: turning.function() for name, turning in self.turnings}
        own = {name: staticmethod(function) for name, function in changes.items() if hasattr(cls, name)}
        return own | {name: _copied(cls, name, changes) for name in self.names}


def _copied(cls: type[nn.Module], name: str, changes: dict[str, Callable]) -> Any:
    method = next(vars(k)[name] for k in cls.__mro__ if name in vars(k))
    if isinstance(method, FunctionType):
        return with_globals(method, changes)
    return type(method)(with_globals(method.__func__, changes))  # a static or class method
