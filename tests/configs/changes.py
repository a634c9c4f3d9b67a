"""Changes to the rotation of a model, for tests that write it into a config."""

from collections.abc import Callable
from dataclasses import replace

from phasor import RotarySpec
from phasor.models.configs import ModelRotary
from phasor.rotary.scaling import Linear, Llama3, Scaling, YaRN

Change = Callable[[ModelRotary], ModelRotary]


class NotHere(Exception):
    """The model has nothing that this change changes."""


def each(model: ModelRotary, change: Callable[[RotarySpec], RotarySpec]) -> ModelRotary:
    """All layers that rotate, changed."""
    if any(spec.frequencies is not None for spec in model.distinct):
        raise NotHere
    changed = {spec: change(spec) for spec in model.distinct}
    return replace(model, layers=tuple(None if spec is None else changed[spec] for spec in model.layers))


def base(model: ModelRotary) -> ModelRotary:
    """A base of its own for each base that there is."""
    return each(model, lambda spec: spec.replace(base=3 * spec.base))


def scaled(scaling: Scaling | None) -> Change:
    return lambda model: each(model, lambda spec: spec.replace(scaling=scaling))


def factor(model: ModelRotary) -> ModelRotary:
    if not any(hasattr(spec.scaling, "factor") for spec in model.distinct):
        raise NotHere
    return each(
        model,
        lambda spec: (
            spec.replace(scaling=replace(spec.scaling, factor=2 * spec.scaling.factor))
            if hasattr(spec.scaling, "factor")
            else spec
        ),
    )


def one_kind(model: ModelRotary) -> ModelRotary:
    """The base of one kind of layer alone."""
    words = list(dict.fromkeys(w for w, s in zip(model.layer_types, model.layers, strict=True) if s is not None))
    if len(words) < 2:
        raise NotHere
    layers = zip(model.layers, model.layer_types, strict=True)
    changed = (s.replace(base=7 * s.base) if s is not None and word == words[-1] else s for s, word in layers)
    return replace(model, layers=tuple(changed))


def width(model: ModelRotary) -> ModelRotary:
    """Half as many channels turn."""
    if any(spec.axes.count > 1 or spec.scaling is not None or spec.rotary_dim % 4 for spec in model.distinct):
        raise NotHere
    return each(model, lambda spec: spec.replace(rotary_dim=spec.rotary_dim // 2))


def length(model: ModelRotary) -> ModelRotary:
    if model.max_position is None:
        raise NotHere
    return replace(model, max_position=4 * model.max_position)


YARN = YaRN(factor=8.0, original_max_position=4096, attention=1.0)  # the factor is stated, for code that sets its own
LLAMA3 = Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192)
CHANGES: dict[str, Change] = {
    "nothing": lambda model: model, "base": base, "factor": factor, "linear": scaled(Linear(4.0)),
    "yarn": scaled(YARN), "llama3": scaled(LLAMA3), "unscaled": scaled(None), "one kind": one_kind, "width": width,
    "length": length,
}  # fmt: skip
