"""What phasor would put in the place of a site: only what gives the same bits as the site itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ...rotary.spec import RotarySpec
from ...support.findings import Difference
from .compare import Best, compare_self_numbered, compare_stored, compare_tables
from .damage import compare_undamaged
from .equal_calls import compare_method
from .functions import Kind
from .norms import DeferredNorm, FusedModule, try_fusing
from .reading import (
    ModelReading,
    forward_specs,
    implied_tables,
    layer_types,
    of_layer_type,
    specs_of,
    specs_of_layer,
)
from .rebuilt import probe_of, rebuilt_module
from .regime import RotaryModule, compare_at, lengths_to_compare
from .report import (
    NOT_AGREED,
    UNLIKE,
    SiteRow,
    agreement,
    compared,
    disagreement,
    not_comparable,
    out_of_reach,
    stateful,
    unlike,
)
from .rotate_function import CALLS, Rotating, RotatingModule, parameters_of
from .sites import PatchSite, nearest, replaced_on_instance
from .tables import SelfNumberedModule, Tables, numbering_of, stored_table


@dataclass(frozen=True)
class Match:
    """What phasor does about a site: the rows of the report, and recipes for the methods of modules (see `swap`).

    ``tables``: those that its functions may be given.
    """

    site: PatchSite
    rows: tuple[SiteRow, ...] = ()
    recipes: tuple[tuple[nn.Module, Any], ...] = ()
    tables: tuple[Tables, ...] = ()


def match(site: PatchSite, reading: ModelReading) -> Match:
    """Compare a site with what phasor makes of its config; `ModelReading.tables` learns which tables a module forms."""
    if site.kind == "tables":
        return _match_self_numbered(site, reading) or _match_tables(site, reading)
    if site.kind == "functions":
        return _match_functions(site, reading)
    return _match_method(site, reading) if site.kind == "method" else _match_stored(site, reading)


def _match_tables(site: PatchSite, reading: ModelReading) -> Match:
    """A module that forms cos and sin of the positions it is given, for each type of layer."""
    models, reason = reading.models_of(site.module)
    probe, problem = probe_of(site.module)
    reason = reason or out_of_reach(site.module) or problem
    forward = forward_specs(models)
    reading.tables[site.path] = []
    rows, agreed = [], []
    for layer_type in layer_types(site.module):
        row = SiteRow(where=site.path, what="tables" if layer_type is None else f"tables: {layer_type}", reason=reason)
        if probe is not None and not reason:
            specs = of_layer_type(layer_type, models, forward)
            compare = partial(compare_tables, layer_type=layer_type, specs=specs, dtypes=reading.dtypes)
            (tables, difference), damage = compare_undamaged(reading.rebuilt, site.path, site.module, probe, compare)
            row = replace(row, reason=disagreement(probe, tables, difference, specs))
            if tables is not None:
                if difference.exact:
                    reading.tables[site.path].append(tables)
                    row = replace(row, reason=stateful(tables, damage) if reading.seq_len is None else "")
                    difference = _frozen(site.module, layer_type, tables, difference, reading)
                    row = replace(row, reason=row.reason or disagreement(probe, tables, difference, specs))
                row = _formed(row, tables, difference, damage, reading)
                agreed += [(layer_type, reading.with_chosen_angles(tables))] if row.replaced else []
        rows.append(row)
    lengths = None if reading.seq_len == "generate" else reading.seq_len
    recipes = ((site.module, RotaryModule(tuple(agreed), lengths)),) if agreed else ()
    return Match(site, tuple(rows), recipes)


def _frozen(
    module: nn.Module, layer_type: str | None, tables: Tables, difference: Difference, reading: ModelReading
) -> Difference:
    """How far tables that agree inside the trained length are from the module's at the lengths of the regime."""
    if reading.seq_len is None or not tables.spec.length_dependent:
        return difference
    lengths = lengths_to_compare(reading.seq_len, tables.spec)
    return compare_at(lambda: rebuilt_module(module), layer_type, tables, lengths)


def _formed(row: SiteRow, tables: Tables, difference: Difference, damage: str, reading: ModelReading) -> SiteRow:
    """The row of tables that were compared."""
    moved = reading.moved(tables) if row.replaced else ""
    row = compared(row, difference, f"{agreement(difference)}{damage}{moved}")
    return replace(row, spec=tables.spec.describe(), kernel="Rotation.at" if row.replaced else row.kernel)


def _match_self_numbered(site: PatchSite, reading: ModelReading) -> Match | None:
    """A module that numbers its tokens itself; None where it is no such module, or does not do it as phasor would."""
    numbering = numbering_of(site.module)
    models, reason = reading.models_of(site.module) if numbering is not None else ([], "")
    if numbering is None or reason or replaced_on_instance(site.module, ["forward"]):
        return None
    probe, _ = probe_of(site.module)
    if probe is None:
        return None
    compare = partial(compare_self_numbered, numbering=numbering, specs=specs_of(models), dtypes=reading.dtypes)
    (tables, difference), damage = compare_undamaged(reading.rebuilt, site.path, site.module, probe, compare)
    if tables is None or not difference.exact:
        return None
    reading.tables[site.path] = [tables]
    row = _formed(SiteRow(where=site.path, what="tables"), tables, difference, damage, reading)
    return Match(site, (row,), ((site.module, SelfNumberedModule(reading.with_chosen_angles(tables), numbering)),))


def _match_functions(site: PatchSite, reading: ModelReading) -> Match:
    """A module whose methods call functions that rotate q and k."""
    near = nearest(site.path, list(reading.tables))
    models, reason = reading.models_of(site.module, near)
    specs = specs_of_layer(site.module, models)
    if specs == [None]:
        reason = "no rotation in this layer"
    reason = reason or replaced_on_instance(site.module, site.methods)
    formed = reading.tables_near(near, specs)
    rows, rotated, as_config_says = [], [], []
    for name, function in site.functions.items():
        tables = formed or implied_tables(function, specs_of(models))
        row = SiteRow(where=site.path, what=name, reason=reason or not_comparable(function, tables))
        if row.replaced:
            best = reading.compared(function, tables, specs_of(models))
            row = _rotated(row, best, specs, "" if formed else ", by the model's own tables")
            if not row.replaced and (cannot := reading.refusal(function, tables, specs_of(models))):
                row = SiteRow(where=site.path, what=name, spec=row.spec, reason=cannot)
                as_config_says.append(name)
            if row.replaced:
                kind: Kind = "static method" if hasattr(type(site.module), name) else "function"
                rotated.append(Rotating(name, kind, best[0]))
                as_config_says.append(name)
        rows.append(row)
    if as_config_says:  # the others are code for another layout, which this config does not switch on
        does = f"{UNLIKE}; {', '.join(as_config_says)} does"
        rows = [replace(row, reason=does) if row.reason == UNLIKE else row for row in rows]
    recipes = ((site.module, RotatingModule(tuple(rotated))),) if rotated else ()
    return Match(site, tuple(rows), recipes, formed)


def _rotated(row: SiteRow, best: Best, specs: Sequence[RotarySpec | None], note: str = "") -> SiteRow:
    """The row of a function that was compared."""
    _, difference = best
    row = compared(row, difference, f"{agreement(difference)}{note}")
    row = replace(row, spec=" / ".join(spec.describe() for spec in specs if spec), reason=unlike(difference))
    return replace(row, kernel="apply_rotary") if row.replaced else row


def _match_method(site: PatchSite, reading: ModelReading) -> Match:
    """A module that rotates in a method of its own."""
    function, near = getattr(type(site.module), site.name), nearest(site.path, list(reading.tables))
    models, reason = reading.models_of(site.module, near)
    row = SiteRow(where=site.path, what=site.name, reason=reason or replaced_on_instance(site.module, [site.name]))
    tables = reading.tables_near(near, ())
    if row.replaced and parameters_of(function)[0] not in CALLS:
        notes = "; ".join(dict.fromkeys(note for model in models for note in model.notes))
        row = replace(row, reason=f"it rotates in a method of its own{f' ({notes})' if notes else ''}")
    elif row.replaced and not tables:
        row = replace(row, reason=NOT_AGREED)
    if not row.replaced:
        return Match(site, (row,))
    best = compare_method(site.module, function, tables, reading.dtypes, reading.kernel)
    row = _rotated(row, best, [tables[0].spec])
    recipes = ((site.module, RotatingModule((Rotating(site.name, "method", best[0]),))),) if row.replaced else ()
    return Match(site, (row,), recipes)


def _match_stored(site: PatchSite, reading: ModelReading) -> Match:
    """A table that a module stores; no row for one that is not of its config."""
    models, _ = reading.models_of(site.module)
    probe, _ = probe_of(site.module) if stored_table(site.module, site.name).is_meta else (site.module, "")
    if probe is None:
        return Match(site)
    compare = partial(compare_stored, name=site.name, specs=specs_of(models))
    (table, difference), damage = compare_undamaged(reading.rebuilt, site.path, site.module, probe, compare)
    if table is None or not difference.exact:
        return Match(site)
    row = _formed(SiteRow(where=site.path, what=f"tables: {site.name}"), table.tables, difference, damage, reading)
    tables = reading.with_chosen_angles(table.tables)
    return Match(site, (row,), ((site.module, replace(table, tables=tables, dtype=torch.float32 if damage else None)),))


def match_norms(matched: Match, dtypes: tuple[torch.dtype, ...]) -> Match:
    """A match with the norms of q and k in it, where they may run in one pass with the rotation.

    Not under a default device: that is a mode of torch, which keeps the kernels away that do the work.
    """
    site = matched.site
    recipe = dict(matched.recipes).get(site.module)
    if not isinstance(recipe, RotatingModule):
        return matched
    tried = try_fusing(SiteRow(where=site.path, what=""), site.module, recipe, matched.tables, dtypes)
    if tried is None:
        return matched
    row, norms = tried
    rows = (*matched.rows, row)
    if norms is None:
        return replace(matched, rows=rows)
    deferred = ((getattr(site.module, name), DeferredNorm()) for name in norms.names)
    return Match(site, rows, ((site.module, FusedModule(recipe, norms)), *deferred))
