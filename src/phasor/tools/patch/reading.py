"""A model's config as read, and which of its specs one of its modules may have."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ...models.configs import ModelRotary, read_parts
from ...rotary.spec import Angles, RotarySpec
from .compare import NEAR_AND_FAR, Best, difference_of
from .equal_calls import compare_function, refusal
from .rebuilt import RebuiltModels
from .rotate_function import parameters_of
from .sites import has_config, part_of
from .tables import Form, Tables

Parts = dict[str, ModelRotary | str]  # as `read_parts` gives them
# First parameter -> the form of the tables that such a function is always given.
OWN_FORM: dict[str, Form] = {"tensor": "half", "sinusoidal_pos": "half", "xq": "complex", "query": "complex"}


class ModelReading:
    """What every site of a model is matched with.

    - ``parts``: the model's config, read part by part; ``rebuilt``: the model built again from it.
    - ``dtypes``: those in which tables and functions are compared; ``angles``, ``kernel`` and ``seq_len`` as in
      `phasor.patch`.
    - ``tables``: the tables that each rotary module was seen to form, by its path; `match` fills them in.
    """

    def __init__(
        self, model: nn.Module, angles: Angles, kernel: str = "auto", seq_len: Any = None, parts: Parts | None = None
    ) -> None:
        self.model, self.angles, self.kernel, self.seq_len = model, angles, kernel, seq_len
        self.config: Any = model.config
        self.parts = read_parts(self.config) if parts is None else parts
        self.rebuilt = RebuiltModels(model)
        weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        self.dtypes = tuple(dict.fromkeys((torch.float32, torch.bfloat16, weights)))
        self.tables: dict[str, list[Tables]] = {}
        self._functions: dict[Any, Best] = {}

    def models_of(self, module: nn.Module, near: Sequence[str] = ()) -> tuple[list[ModelRotary], str]:
        """What the part that a module was built for rotates, with float32 angles; or why that is not known."""
        config = getattr(module, "config", None)
        path = None if config is None else part_of(config, self.config)
        if path is None and near:
            path = part_of(getattr(self.model.get_submodule(near[0]), "config", None), self.config)
        chosen = [p for p in self.parts if path is None or p == path or p.startswith(f"{path}.indexer".lstrip("."))]
        parts = [self.parts[p] for p in chosen]
        models = [part.with_angles("float32") for part in parts if isinstance(part, ModelRotary)]
        if models:
            return models, ""
        return [], next((p for p in parts if isinstance(p, str)), f"no part of the config says what {path!r} rotates")

    def tables_near(self, near: Sequence[str], specs: Sequence[RotarySpec | None]) -> tuple[Tables, ...]:
        """The tables that a layer may be given: of the modules near it those of its own specs, all if none is."""
        tables = tuple(dict.fromkeys(t for path in near for t in self.tables[path]))
        forward = {spec.replace(reverse=False) for spec in specs if spec is not None}
        return tuple(t for t in tables if t.spec in forward) or tables

    def compared(
        self, function: Callable, tables: tuple[Tables, ...], specs: Sequence[RotarySpec], kernel: str = ""
    ) -> Best:
        """`compare_function`, once for all layers that are alike."""
        kernel = kernel or self.kernel
        key = function, tables, tuple(specs), kernel
        if key not in self._functions:
            self._functions[key] = compare_function(function, tables, specs, self.dtypes, kernel)
        return self._functions[key]

    def refusal(self, function: Callable, tables: tuple[Tables, ...], specs: Sequence[RotarySpec]) -> str:
        """Why the named kernel cannot rotate as a function does that `"auto"` agrees with; empty if that is not it."""
        if self.kernel == "auto":
            return ""
        way, difference = self.compared(function, tables, specs, "auto")
        return refusal(function, way, tables, self.dtypes, self.kernel) if difference.exact else ""

    def with_chosen_angles(self, tables: Tables) -> Tables:
        if self.angles == "float32":  # the model's own, which are RoFormer's in float64
            return tables
        return replace(tables, spec=tables.spec.replace(angles=self.angles))

    def moved(self, tables: Tables) -> str:
        """How far the chosen angles move cos and sin from the model's."""
        if self.angles in ("float32", tables.spec.angles) or tables.spec.learned:
            return ""
        far = torch.full((tables.spec.axes.count, 1, 1), NEAR_AND_FAR[-1])
        at = far.movedim(0, -1) if tables.coordinates_last else far if len(far) > 1 else far[0]
        moved = difference_of(*(t.at(torch.zeros(1), at) for t in (tables, self.with_chosen_angles(tables))))
        return f"; {self.angles} angles move it by {moved.size:.1e} at position {NEAR_AND_FAR[-1]}"


def parts_of(model: nn.Module) -> Parts | None:
    """What a model's config says, part by part; None without a config, and where it says of no part what rotates."""
    if not has_config(model):
        return None
    config: Any = model.config
    parts = read_parts(config)
    known = any(isinstance(part, ModelRotary) or part.startswith("no rotary") for part in parts.values())
    return parts if known else None


def specs_of(models: Sequence[ModelRotary]) -> list[RotarySpec]:
    return list(dict.fromkeys(spec for model in models for spec in model.distinct))


def forward_specs(models: Sequence[ModelRotary]) -> list[RotarySpec]:
    """As rotary modules form them: which way q and k rotate by a table is not theirs to say."""
    return [spec.replace(reverse=False) if spec.reverse else spec for spec in specs_of(models)]


def specs_of_layer(module: nn.Module, models: Sequence[ModelRotary]) -> list[RotarySpec | None]:
    """What rotates in this layer: one spec or None (NoPE), or all if the module does not say which layer it is."""
    index = getattr(module, "layer_idx", None)
    if isinstance(index, int) and models and 0 <= index < len(models[0].layers):
        return [models[0].layers[index]]
    return list(specs_of(models))


def layer_types(module: nn.Module) -> list[str | None]:
    """The layer types for which a module has frequencies of their own; ``[None]`` if it makes no difference."""
    names = [name for name, _ in module.named_buffers(recurse=False) if name.endswith("_inv_freq")]
    types: list[str | None] = [n.removesuffix("_inv_freq") for n in names if not n.endswith("original_inv_freq")]
    return types or [None]


def of_layer_type(layer_type: str | None, models: Sequence[ModelRotary], specs: list[RotarySpec]) -> list[RotarySpec]:
    """The specs of the layers of that type, which are the only ones its tables may be; all where none is named so."""
    chosen = {
        spec.replace(reverse=False)
        for model in models
        for spec, word in zip(model.layers, model.layer_types, strict=True)
        if spec is not None and word == layer_type
    }
    return [spec for spec in specs if spec in chosen] or specs


def implied_tables(function: Callable, specs: Sequence[RotarySpec]) -> tuple[Tables, ...]:
    """Tables to compare with, for functions that always take the same form whoever formed it."""
    names = parameters_of(function)[0]
    form = "doubled" if "v" in names else OWN_FORM.get(names[0])
    return tuple(Tables(s, form, s.tables in ("activation", "rounded")) for s in specs) if form else ()
