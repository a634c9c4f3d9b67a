"""Tables that a model forms when it is built and keeps: GPT-J's and CodeGen's buffer, RoFormer's frozen embedding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.spec import RotarySpec
from .agreement import Agreement
from .compare import best_of
from .tables import Tables

NAMES = ("embed_positions", "weight")


@dataclass(frozen=True)
class HeldTable:
    """Methods for a module that keeps all sines before all cosines, ``[length, 2 pairs]``, under ``name``.

    The table is formed once, by the spec; the module's own tensor says only on which device and in which dtype, and
    not even that where it was rounded: then ``dtype`` does.
    """

    tables: Tables
    name: str
    length: int
    dtype: torch.dtype | None = None

    def table(self) -> Tensor:
        cos, sin = self.tables.at(torch.zeros(1), torch.arange(self.length))
        return torch.cat((sin, cos), dim=-1)

    def methods(self, cls: type[nn.Module]) -> dict[str, Any]:
        table = self.table()

        def held(module: nn.Module) -> Tensor:
            own = held_by(module, self.name)
            return table.to(own.device, self.dtype or own.dtype)

        return {self.name: property(held)}


@dataclass(frozen=True)
class Together:
    """The methods of several recipes for one module."""

    recipes: tuple[Any, ...]

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        return {name: method for recipe in self.recipes for name, method in recipe.methods(cls).items()}


def held_by(module: nn.Module, name: str) -> Tensor:
    """The module's own tensor of that name."""
    found = module._buffers.get(name)
    found = module._parameters[name] if found is None else found
    assert found is not None
    return found


def held_tables(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Modules that keep a table of positions, by path: a buffer of that name, or a frozen embedding of sinusoids."""
    found = {}
    for path, module in model.named_modules():
        sinusoids = isinstance(module, nn.Embedding) and "Sinusoidal" in type(module).__name__
        name = NAMES[1] if sinusoids else NAMES[0]
        own = module._buffers.get(name) if not sinusoids else module.weight
        if own is not None and own.ndim == 2 and not own.requires_grad:
            found[path] = (module, name)
    return found


def compare_held(module: nn.Module, name: str, specs: Sequence[RotarySpec]) -> tuple[HeldTable | None, Agreement]:
    """The table out of ``specs`` that agrees best with a module's own, rounded if it is stored so with the weights."""
    own = held_by(module, name)
    dtype = torch.float32 if own.dtype.itemsize == 2 and name in module._buffers else own.dtype
    fitting = (spec for spec in specs if spec.axes.count == 1 and 2 * spec.pairs == own.shape[-1])
    made = (HeldTable(Tables(spec, "half", rounded=False), name, len(own)) for spec in fitting)
    return best_of((table, Agreement.of(own, table.table().to(dtype))) for table in made)
