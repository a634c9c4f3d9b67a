"""Weights whose shapes are not those of their model."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from ...patch.sites import callers

Shape = tuple[int, ...]


class Misfit(NamedTuple):
    """One weight: its name, its shape by the config, and as it is."""

    name: str
    expected: Shape
    stored: Shape


def misfits(model: nn.Module, shapes: Mapping[str, Shape]) -> list[Misfit]:
    """Weights whose shape is not the model's, those of attentions first.

    Others may be stored packed or transposed: of them only those of unpacked weights, with other sizes in any order.
    """
    inside = tuple(f"{caller.path}." for caller in callers(model))
    packed = getattr(model.config, "quantization_config", None) is not None
    own = {name: tuple(p.shape) for name, p in model.named_parameters() if name in shapes}
    wrong = [Misfit(name, shape, shapes[name]) for name, shape in own.items() if shapes[name] != shape]
    others = [m for m in wrong if not m.name.startswith(inside) and sorted(m.expected) != sorted(m.stored)]
    return [m for m in wrong if m.name.startswith(inside)] + ([] if packed else others)
