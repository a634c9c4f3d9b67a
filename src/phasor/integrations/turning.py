"""Stand-ins for the functions with which models turn q and k: the same arguments and results, turned by phasor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from ..apply import TensorFormat, apply_rotary
from ..layout import Layout
from ..rotation import Rotation
from ..spec import RotarySpec
from .calls import CALLS, order_of
from .swap import with_globals
from .tables import Form, per_pair


@dataclass(frozen=True)
class Turning:
    """How one function of a model turns: plain data, equal for all specs whose pairs lie alike.

    - ``parameters`` and the default ``unsqueeze_dim`` are those of the function; ``order`` is the order of heads and
      tokens where it has no such parameter; None: heads go to axis 1 of its tables, batched or not.
    - ``form``: that of the tables it is given; ``layout``: that of the heads.
    - ``promoted``: the result keeps the dtype of the tables; ``widened``: tables are widened before the products;
      ``backwards``: it turns by minus the angle of its tables; ``sheared``: the second members of its pairs have angles
      of their own.
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
            promoted=spec.angles != "exact" and spec.tables == "promoted", widened=spec.tables == "rounded",
            backwards=spec.reverse, sheared=spec.second is not None, kernel=kernel,
        )  # fmt: skip

    def function(self) -> Callable:
        """The stand-in: it takes and returns what the model's own function does."""
        form, whole, kernel = self.form, self.layout, self.kernel
        promoted, widened, backwards, sheared = self.promoted, self.widened, self.backwards, self.sheared

        def turn(x: Tensor, cos: Tensor, sin: Tensor, order: TensorFormat | None) -> Tensor:
            order = order or order_of(cos, 1)
            more: dict[str, Any] = {}
            if sheared:
                more["second"] = tuple(t[..., t.shape[-1] // 2 :] for t in (cos, sin))
            cos, sin = per_pair(cos, form, whole.blocks), per_pair(sin, form, whole.blocks)
            if widened:
                cos, sin = cos.float(), sin.float()
            # heads may be cut before they are turned
            layout = whole if x.shape[-1] == whole.head_dim else replace(whole, head_dim=x.shape[-1])
            rotation = Rotation(cos=cos, sin=-sin if backwards else sin, layout=layout, promoted=promoted, **more)
            return apply_rotary(x, rotation, tensor_format=order, kernel=kernel)

        made: Callable = CALLS[self.parameters](turn, self.unsqueeze_dim, self.order)
        return made


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
