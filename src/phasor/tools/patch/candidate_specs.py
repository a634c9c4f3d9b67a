"""Which specs of a model one of its modules may have, as far as the module itself says."""

from collections.abc import Callable, Sequence

from torch import nn

from ...models.configs import ModelRotary
from ...rotary.spec import RotarySpec
from .compare_rotation import parameters_of
from .tables import Form, Tables

# First parameter -> the form of the tables that such a function is always given.
OWN_FORM: dict[str, Form] = {"tensor": "half", "sinusoidal_pos": "half", "xq": "complex", "query": "complex"}


def specs_of(models: Sequence[ModelRotary]) -> list[RotarySpec]:
    return list(dict.fromkeys(spec for model in models for spec in model.distinct))


def forward_specs(models: Sequence[ModelRotary]) -> list[RotarySpec]:
    """As rotary modules form them: which way q and k turn by a table is not theirs to say."""
    return [spec.replace(reverse=False) if spec.reverse else spec for spec in specs_of(models)]


def own_specs(module: nn.Module, models: Sequence[ModelRotary]) -> list[RotarySpec | None]:
    """What turns in this layer: one spec or None (NoPE), or all if the module does not say which layer it is."""
    index = getattr(module, "layer_idx", None)
    if isinstance(index, int) and models and 0 <= index < len(models[0].layers):
        return [models[0].layers[index]]
    return list(specs_of(models))


def layer_types(module: nn.Module) -> list[str | None]:
    """The layer types for which a module has frequencies of their own; ``[None]`` if it makes no difference."""
    names = [name for name, _ in module.named_buffers(recurse=False) if name.endswith("_inv_freq")]
    types: list[str | None] = [n.removesuffix("_inv_freq") for n in names if not n.endswith("original_inv_freq")]
    return types or [None]


def of_kind(layer_type: str | None, models: Sequence[ModelRotary], specs: list[RotarySpec]) -> list[RotarySpec]:
    """The specs of the layers of that kind, which are the only ones its tables may be; all where none is named so."""
    chosen = {
        spec.replace(reverse=False)
        for model in models
        for spec, word in zip(model.layers, model.layer_types, strict=True)
        if spec is not None and word == layer_type
    }
    return [spec for spec in specs if spec in chosen] or specs


def implied(function: Callable, specs: Sequence[RotarySpec]) -> tuple[Tables, ...]:
    """Tables to compare with, for functions that always take the same form whoever formed it."""
    names = parameters_of(function)[0]
    form = "doubled" if "v" in names else OWN_FORM.get(names[0])
    return tuple(Tables(s, form, s.tables in ("activation", "rounded")) for s in specs) if form else ()
