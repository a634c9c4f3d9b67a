"""A model as an engine turns it: the geometry of its own code, with base and scaling of the engine."""

from collections.abc import Callable
from dataclasses import replace

from ..configs import ModelRotary
from ..scaling import Scaling
from ..spec import RotarySpec
from .seen import Seen

Rotation = Callable[[str], tuple[float, Scaling | None]]  # the base and the scaling of one kind of layer


def turned(seen: Seen, rotation: Rotation) -> ModelRotary:
    """The model with base and scaling of each kind of layer replaced by those of ``rotation``."""
    made: dict[tuple[str, RotarySpec], RotarySpec] = {}
    for kind, spec in zip(seen.kinds, seen.model.layers, strict=True):
        if spec is not None and (kind, spec) not in made:
            base, scaling = rotation(kind)
            made[kind, spec] = spec.replace(base=base, scaling=scaling)
    pairs = zip(seen.kinds, seen.model.layers, strict=True)
    return replace(seen.model, layers=tuple(None if spec is None else made[kind, spec] for kind, spec in pairs))
