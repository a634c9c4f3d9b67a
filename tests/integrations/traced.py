"""What a patched model calls: each stand-in beside the model's own code, on the very arguments of the real call."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from phasor.support.findings import Difference
from phasor.tools.patch import swap
from phasor.tools.patch.compare import difference_of
from phasor.tools.patch.regime import RotaryModule
from phasor.tools.patch.rotate_function import RotatingMethod, RotatingModule
from phasor.tools.patch.sites import rotating_calls
from phasor.tools.patch.tables import SelfNumberedModule, StoredTable


class Call(NamedTuple):
    """One call of a stand-in: the class of the module, what it stands for, the shapes it was given, and how it did."""

    module: str
    what: str
    shapes: tuple[tuple[int, ...], ...]
    agreement: Difference


class Trace:
    """All calls while it is on; for speed, once per shape."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Any, ...], Call] = {}

    def beside(
        self, owner: type, what: str, theirs: Callable[..., Any], ours: Callable[..., Any]
    ) -> Callable[..., Any]:
        """``ours``, which also calls ``theirs`` and keeps how both agree."""

        def both(*args: Any, **kwargs: Any) -> Any:
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            result = ours(*args, **kwargs)
            key = (owner, what, *((x.shape, x.dtype, x.stride()) for x in given))
            if key not in self.calls:
                with torch.no_grad():
                    agreement = difference_of(_finite(theirs(*args, **kwargs)), _finite(result))
                shapes = tuple(tuple(x.shape) for x in given)
                self.calls[key] = Call(owner.__name__, what, shapes, agreement)
            return result

        return both

    @property
    def reached(self) -> set[tuple[str, str]]:
        return {(call.module, call.what) for call in self.calls.values()}


def _finite(value: Any) -> Any:
    """Rows that see nothing but padding are no numbers, in both."""
    if isinstance(value, tuple | list):
        return tuple(_finite(one) for one in value)
    return value.nan_to_num() if isinstance(value, Tensor) and not value.is_complex() else value


@contextlib.contextmanager
def own_code_contiguous() -> Iterator[None]:
    """A model that is patched inside runs its own code, and what turns returns contiguous tensors, as phasor does.

    Products of matrices may add strided tensors in another order, so only beside such a model must all bits be equal.
    """

    def contiguous(theirs: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            result = theirs(*args, **kwargs)
            return tuple(x.contiguous() for x in result) if isinstance(result, tuple | list) else result.contiguous()

        return called

    def stand_ins(self: RotatingModule, cls: type[nn.Module], fused: Any = None) -> dict[str, Callable[..., Any]]:
        own, _ = rotating_calls(cls)
        return {name: contiguous(own[name]) for name, _ in self.functions}

    with pytest.MonkeyPatch.context() as changed:
        for recipe in (RotaryModule, SelfNumberedModule, StoredTable):
            changed.setattr(recipe, "methods", lambda self, cls: {})
        changed.setattr(RotatingModule, "stand_ins", stand_ins)
        changed.setattr(RotatingMethod, "methods", lambda self, cls: {self.name: contiguous(getattr(cls, self.name))})
        changed.setattr(swap, "_CLASSES", {})
        yield


@contextlib.contextmanager
def traced() -> Iterator[Trace]:
    """A model that is patched inside keeps a trace of its calls."""
    trace = Trace()

    def beside_forward(usual: Callable[..., Any]) -> Callable[..., Any]:
        def methods(self: Any, cls: type[nn.Module]) -> dict[str, Callable[..., Any]]:
            found = usual(self, cls)
            return found | {"forward": trace.beside(cls, "tables", cls.forward, found["forward"])}

        return methods

    def stand_ins(self: RotatingModule, cls: type[nn.Module], fused: Any = None) -> dict[str, Callable[..., Any]]:
        own, _ = rotating_calls(cls)
        return {name: trace.beside(cls, name, own[name], f) for name, f in of_functions(self, cls, fused).items()}

    def of_method(self: RotatingMethod, cls: type[nn.Module]) -> dict[str, Callable[..., Any]]:
        found = of_methods(self, cls)
        return {name: trace.beside(cls, name, getattr(cls, name), ours) for name, ours in found.items()}

    of_functions, of_methods = RotatingModule.stand_ins, RotatingMethod.methods
    with pytest.MonkeyPatch.context() as changed:
        for recipe in (RotaryModule, SelfNumberedModule):
            changed.setattr(recipe, "methods", beside_forward(recipe.methods))
        changed.setattr(RotatingModule, "stand_ins", stand_ins)
        changed.setattr(RotatingMethod, "methods", of_method)
        changed.setattr(swap, "_CLASSES", {})
        yield trace
