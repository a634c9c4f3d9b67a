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
from phasor.tools.patch.rotate_function import Rotating, RotatingModule
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

    with pytest.MonkeyPatch.context() as changed:
        for recipe in (RotaryModule, SelfNumberedModule, StoredTable):
            changed.setattr(recipe, "methods", lambda self, cls: {})
        changed.setattr(Rotating, "stand_in", lambda self, own, fused=None: contiguous(own))
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

    def of_functions(self: RotatingModule, cls: type[nn.Module], fused: Any = None) -> dict[str, Any]:
        def beside(one: Rotating, own: Any, fused: Any = None) -> Any:
            return trace.beside(cls, one.name, own, of_one(one, own, fused))

        with pytest.MonkeyPatch.context() as within:
            within.setattr(Rotating, "stand_in", beside)
            return methods(self, cls, fused)

    methods, of_one = RotatingModule.methods, Rotating.stand_in
    with pytest.MonkeyPatch.context() as changed:
        for recipe in (RotaryModule, SelfNumberedModule):
            changed.setattr(recipe, "methods", beside_forward(recipe.methods))
        changed.setattr(RotatingModule, "methods", of_functions)
        changed.setattr(swap, "_CLASSES", {})
        yield trace
