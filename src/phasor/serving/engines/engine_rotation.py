"""A model as an engine turns it: the geometry of its own code, with base and scaling of the engine."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...models.configs import ModelRotary
from ...rotary.scaling import Scaling
from ...rotary.spec import RotarySpec
from .base import Rule
from .engine_config import Seen
from .rope import Rope

Rotation = Callable[[str], tuple[float, Scaling | None]]  # the base and the scaling of one kind of layer


def turned(seen: Seen, rotation: Rotation, ropes: Mapping[str, Rope] | None = None) -> ModelRotary:
    """The model with base and scaling of each kind of layer replaced by those of ``rotation``.

    ``ropes``: the rope parameters of each kind, for engines that turn whole heads where these state no share.
    """
    made: dict[tuple[str, RotarySpec], RotarySpec] = {}
    for kind, spec in zip(seen.kinds, seen.model.layers, strict=True):
        if spec is not None and (kind, spec) not in made:
            base, scaling = rotation(kind)
            made[kind, spec] = spec.replace(base=base, scaling=scaling)
            if ropes is not None and not spec.trailing and "partial_rotary_factor" not in ropes[kind]:
                made[kind, spec] = made[kind, spec].replace(rotary_dim=spec.head_dim, exponent_dim=None)
    pairs = zip(seen.kinds, seen.model.layers, strict=True)
    layers = tuple(None if spec is None else made[kind, spec] for kind, spec in pairs)
    return replace(seen.model, layers=layers, softmax_factor=softmax_of(layers, seen.model.softmax_factor))


def softmax_rules(model: ModelRotary, source: str, run: bool = False) -> tuple[Rule, ...]:
    """What is told of a factor on the softmax; nothing without one."""
    if model.softmax_factor == 1:
        return ()
    return (Rule(f"the softmax scale is multiplied by {model.softmax_factor:.6g}", source, run),)


def softmax_of(layers: Iterable[RotarySpec | None], otherwise: float) -> float:
    """The factor on the softmax: latent attention takes the square of YaRN's ``mscale_all_dim`` there."""
    latent = [spec.scaling for spec in layers if spec is not None and spec.trailing and spec.scaling is not None]
    return latent[0].softmax_factor() if latent else otherwise
