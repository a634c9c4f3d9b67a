"""The plan of a patch: what is compared, what will be replaced by what, and a row of the report for each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ...models.configs import ModelRotary, read_parts
from ...rotary.spec import Angles, RotarySpec
from .agreement import Agreement
from .candidate_specs import forward_specs, implied, layer_types, of_kind, own_specs, specs_of
from .compare import NEAR_AND_FAR, Found, compare_tables
from .compare_rotation import compare_turning
from .find import Caller, nearest, part_of, taken
from .fuse import FusedModule, Fusion, try_fusing
from .mend import compare_mended
from .norms import LeftNorm
from .reasons import UNLIKE, disagreement, not_comparable, out_of_reach, stateful, unlike
from .rebuilt import Twins, probe_of
from .report import Row
from .rotate_function import TurningModule
from .tables import RotaryModule, Tables


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
        reason = reason or out_of_reach(module) or problem
        forward = forward_specs(models)
        agreed: list[tuple[str | None, Tables]] = []
        self.tables[path] = []
        for layer_type in layer_types(module):
            row = Row(path, "tables" if layer_type is None else f"tables: {layer_type}", reason=reason)
            if probe is not None and not reason:
                own = of_kind(layer_type, models, forward)
                compare = partial(compare_tables, layer_type=layer_type, specs=own, dtypes=self.dtypes)
                (found, agreement), was = compare_mended(self.twins, path, module, probe, compare)
                row = replace(row, reason=disagreement(probe, found, agreement, own))
                if found is not None:
                    row = replace(row, spec=found.spec.describe(), agreement=f"{agreement}{was}")
                if found is not None and row.replaced:
                    self.tables[path].append(found)
                    row = replace(row, reason=stateful(found, was))
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
            known = self.given(near, own)
            tables = known or implied(function, specs)
            row = Row(caller.path, name, reason=reason or not_comparable(function, tables))
            if row.replaced:
                turning, agreement = self._compared(function, tables, specs)
                told = str(agreement) if known else f"{agreement}, by the model's own tables"
                row = replace(row, spec=" / ".join(s.describe() for s in own if s), agreement=told)
                if agreement.equal:
                    row = replace(row, kernel="apply_rotary")
                    turnings.append((name, turning))
                else:
                    row = replace(row, reason=unlike(agreement))
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
                tables = self.given(near, own_specs(module, self.reading(module, near)[0]))
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

    def given(self, near: Sequence[str], own: Sequence[RotarySpec | None]) -> tuple[Tables, ...]:
        """The tables that a layer may be given: of the modules near it those of its own specs, all if none is."""
        known = tuple(dict.fromkeys(t for path in near for t in self.tables[path]))
        forward = {spec.replace(reverse=False) for spec in own if spec is not None}
        return tuple(t for t in known if t.spec in forward) or known

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
