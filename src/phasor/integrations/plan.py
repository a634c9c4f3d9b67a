"""The plan of a patch: what is compared, what will be replaced by what, and a row of the report for each."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from ..configs import ModelRotary, read_parts
from ..spec import Angles, RotarySpec
from .agreement import Agreement
from .calls import CALLS
from .compare import NEAR_AND_FAR, Found, compare_tables
from .compare_turning import compare_turning, parameters_of
from .find import Caller, nearest, part_of, taken
from .fuse import FusedModule, Fusion, try_fusing
from .mend import compare_mended
from .norms import LeftNorm
from .report import Row
from .tables import Form, RotaryModule, Tables
from .turning import TurningModule
from .twin import Twins

# First parameter -> the form of the tables that such a function is always given.
OWN_FORM: dict[str, Form] = {"tensor": "half", "sinusoidal_pos": "half", "xq": "complex", "query": "complex"}

UNLIKE = "it does not turn q and k as the config says"
NOT_AGREED = "the tables it turns by were not agreed on"


@dataclass
class Plan:
    """Recipes and rows, filled module by module."""

    model: nn.Module
    angles: Angles
    kernel: str = "auto"
    rows: list[Row] = field(default_factory=list)
    recipes: dict[nn.Module, Any] = field(default_factory=dict)
    tables: dict[str, list[Tables]] = field(default_factory=dict)  # path of a rotary module -> what was agreed on
    compared: dict[Any, Found] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config: Any = self.model.config
        self.parts = read_parts(self.config)
        self.twins = Twins(self.model)
        own = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
        self.dtypes = tuple(dict.fromkeys((torch.float32, torch.bfloat16, own)))

    def add_tables(self, path: str, module: nn.Module) -> None:
        """Plan for a module that forms cos and sin."""
        models, reason = self.reading(module)
        probe, problem = probe_of(module)
        reason = reason or _out_of_reach(module) or problem
        forward = [s.replace(reverse=False) if s.reverse else s for s in specs_of(models)]
        agreed: list[tuple[str | None, Tables]] = []
        self.tables[path] = []
        for layer_type in layer_types(module):
            row = Row(path, "tables" if layer_type is None else f"tables: {layer_type}", reason=reason)
            if probe is not None and not reason:
                own = of_kind(layer_type, models, forward)
                compare = partial(compare_tables, layer_type=layer_type, specs=own, dtypes=self.dtypes)
                (found, agreement), was = compare_mended(self.twins, path, module, probe, compare)
                row = replace(row, reason=_disagreement(probe, found, agreement, own))
                if found is not None:
                    row = replace(row, spec=found.spec.describe(), agreement=f"{agreement}{was}")
                if found is not None and row.replaced:
                    self.tables[path].append(found)
                    row = replace(row, reason=_stateful(found, was))
                if found is not None and row.replaced:
                    agreed.append((layer_type, self.chosen(found)))
                    row = replace(row, kernel="Rotation.at", agreement=f"{agreement}{was}{self.moved(found)}")
            self.rows.append(row)
        if agreed:
            self.recipes[module] = RotaryModule(tuple(agreed))

    def add_turning(self, caller: Caller) -> None:
        """Plan for a module that turns q and k."""
        near = nearest(caller.path, list(self.tables))
        models, reason = self.reading(caller.module, near)
        specs = specs_of(models)
        own = own_specs(caller.module, models)
        if own == [None]:
            reason = "no rotation in this layer"
        reason = reason or taken(caller.module, caller.methods)
        turnings, rows = [], []
        for name, function in caller.functions.items():
            known = tuple(dict.fromkeys(t for path in near for t in self.tables[path]))
            tables = known or implied(function, specs)
            row = Row(caller.path, name, reason=reason or _not_comparable(function, tables))
            if row.replaced:
                turning, agreement = self._compared(function, tables, specs)
                told = str(agreement) if known else f"{agreement}, by the model's own tables"
                row = replace(row, spec=" / ".join(s.describe() for s in own if s), agreement=told)
                if agreement.close:
                    row = replace(row, kernel="apply_rotary")
                    turnings.append((name, turning))
                else:
                    row = replace(row, reason=UNLIKE)
            rows.append(row)
        # code for another layout, which this config does not switch on
        does = f"{UNLIKE}; {', '.join(name for name, _ in turnings)} does" if turnings else UNLIKE
        self.rows += [replace(row, reason=does) if row.reason == UNLIKE else row for row in rows]
        if turnings:
            self.recipes[caller.module] = TurningModule(tuple(turnings), caller.methods)

    def fuse_norms(self) -> None:
        """Plan for the norms of q and k in modules that turn with phasor. Not under a default device: that is a mode of
        torch, which keeps the kernels away that will do the work.
        """
        for path, module in self.model.named_modules():
            if isinstance(turning := self.recipes.get(module), TurningModule):
                near = nearest(path, list(self.tables))
                tables = tuple(dict.fromkeys(t for p in near for t in self.tables[p]))
                fusion = try_fusing(module, turning, tables, self.dtypes)
                if fusion is not None:
                    self._fuse(path, module, turning, fusion)

    def _fuse(self, path: str, module: nn.Module, turning: TurningModule, fusion: Fusion) -> None:
        row = Row(path, fusion.what, reason=fusion.reason)
        if fusion.norms is not None:
            row = replace(row, spec=fusion.norms.describe())
        if row.replaced:
            assert fusion.norms is not None
            row = replace(row, agreement=f"{fusion.agreement}, forwards", kernel="apply_qk_norm_rotary")
            self.recipes[module] = FusedModule(turning, fusion.norms)
            for name in fusion.norms.names:
                self.recipes[getattr(module, name)] = LeftNorm()
        last = max(i for i, other in enumerate(self.rows) if other.path == path)
        self.rows.insert(last + 1, row)

    def _compared(self, function: Callable, tables: tuple[Tables, ...], specs: Sequence[RotarySpec]) -> Found:
        """`compare_turning`, once for all layers that are alike."""
        key = (function, tables, tuple(specs))
        if key not in self.compared:
            self.compared[key] = compare_turning(function, tables, specs, self.dtypes, self.kernel)
        return self.compared[key]

    def reading(self, module: nn.Module, near: Sequence[str] = ()) -> tuple[list[ModelRotary], str]:
        """What the part that a module was built for rotates, with float32 angles; or why that is not known."""
        config = getattr(module, "config", None)
        path = None if config is None else part_of(config, self.config)
        if path is None and near:
            path = part_of(getattr(self.model.get_submodule(near[0]), "config", None), self.config)
        chosen = [p for p in self.parts if path is None or p == path or p.startswith(f"{path}.indexer".lstrip("."))]
        read = [self.parts[p] for p in chosen]
        models = [r.with_angles("float32") for r in read if isinstance(r, ModelRotary)]
        if models:
            return models, ""
        return [], next((r for r in read if isinstance(r, str)), f"no part of the config says what {path!r} rotates")

    def chosen(self, tables: Tables) -> Tables:
        if self.angles == "float32":  # the model's own, which are RoFormer's in float64
            return tables
        return replace(tables, spec=tables.spec.replace(angles=self.angles))

    def moved(self, tables: Tables) -> str:
        """How far the chosen angles move cos and sin from the model's."""
        if self.angles in ("float32", tables.spec.angles) or tables.spec.learned:
            return ""
        far = torch.full((tables.spec.axes.count, 1, 1), NEAR_AND_FAR[-1])
        at = far.movedim(0, -1) if tables.coordinates_last else far if len(far) > 1 else far[0]
        moved = Agreement.of(*(t.at(torch.zeros(1), at) for t in (tables, self.chosen(tables))))
        return f"; {self.angles} angles move it by {moved.difference:.1e} at position {NEAR_AND_FAR[-1]}"


def specs_of(models: Sequence[ModelRotary]) -> list[RotarySpec]:
    return list(dict.fromkeys(spec for model in models for spec in model.distinct))


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


def _out_of_reach(module: nn.Module) -> str:
    """Why a module is not compared, whatever it computes."""
    takes = [name for name in signature(module.forward).parameters]
    if "position_ids" not in takes:
        return f"it forms its tables from {', '.join(takes) or 'nothing'}, not from position_ids"
    return taken(module, ["forward"])


def of_kind(layer_type: str | None, models: Sequence[ModelRotary], specs: list[RotarySpec]) -> list[RotarySpec]:
    """The specs of the layers of that kind, which are the only ones its tables may be; all where none is named so."""
    chosen = {
        spec.replace(reverse=False)
        for model in models
        for spec, word in zip(model.layers, model.layer_types, strict=True)
        if spec is not None and word == layer_type
    }
    return [spec for spec in specs if spec in chosen] or specs


def _stateful(tables: Tables, was: str) -> str:
    scaling = tables.spec.scaling
    if scaling is not None and scaling.length_dependent and not scaling.two_regimes:
        way_out = f"{was}: call phasor.repair(model)" if was else ""
        kept = "its frequencies depend on the lengths of earlier calls, which the model's module keeps (dynamic NTK)"
        return f"{kept}{way_out}"
    return ""


def probe_of(module: nn.Module) -> tuple[nn.Module | None, str]:
    """A copy of a module that can be called; one on the meta device is built again from its config."""
    if not any(t.is_meta for t in (*module.buffers(), *module.parameters())):
        return deepcopy(module), ""
    try:
        return type(module)(module.config), ""
    except Exception as error:
        return None, f"it is on the meta device and cannot be built from its config: {error}"


def _disagreement(module: nn.Module, found: Tables | None, agreement: Agreement, specs: Sequence[RotarySpec]) -> str:
    """Why a module's result and phasor's are not the same; empty if they are."""
    if agreement.close:
        return ""
    if found is None:
        pairs = {
            n.removesuffix("_inv_freq"): b.shape[-1] for n, b in module.named_buffers(recurse=False) if b.ndim == 1
        }
        read = " or ".join(dict.fromkeys(str(s.pairs) for s in specs))
        return f"its result is not cos and sin of {read} pairs, as its config says (it has {pairs or 'no frequencies'})"
    dtypes = {b.dtype for b in module.buffers(recurse=False)} - {torch.float32}
    if dtypes:
        return f"its frequencies were rounded to {dtypes.pop()} by .to(); load the model in that dtype instead"
    return "phasor forms other values from its config"


def _not_comparable(function: Callable, tables: Sequence[Tables]) -> str:
    parameters, _ = parameters_of(function)
    if not tables:
        return NOT_AGREED
    return "" if parameters in CALLS else f"its arguments ({', '.join(parameters)}) are not known"


def implied(function: Callable, specs: Sequence[RotarySpec]) -> tuple[Tables, ...]:
    """Tables to compare with, for functions that always take the same form whoever formed it."""
    names = parameters_of(function)[0]
    form = "doubled" if "v" in names else OWN_FORM.get(names[0])
    return tuple(Tables(s, form, s.tables in ("activation", "rounded")) for s in specs) if form else ()
