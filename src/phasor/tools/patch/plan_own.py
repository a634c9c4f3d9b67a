"""Plans for what models do in ways of their own: tokens they count, methods that turn, tables they keep."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from .candidate_specs import specs_of
from .compare_rotation import compare_method, parameters_of
from .find import nearest, taken
from .mend import compare_mended
from .plan import Plan
from .reasons import NOT_AGREED, unlike
from .rebuilt import probe_of
from .report import Row
from .rotate_function import TurningMethod
from .self_numbered import CountedModule, compare_counted, counts_of
from .signatures import CALLS
from .stored_tables import Together, compare_held, held_by


def plan_counted(plan: Plan, path: str, module: nn.Module) -> bool:
    """Whether it is a module that numbers its tokens itself, as phasor would."""
    counts = counts_of(module)
    if counts is None:
        return False
    models, reason = plan.reading(module)
    if reason or taken(module, ["forward"]):
        return False
    probe, _ = probe_of(module)
    if probe is None:
        return False
    compare = partial(compare_counted, counts=counts, specs=specs_of(models), dtypes=plan.dtypes)
    (found, agreement), was = compare_mended(plan.twins, path, module, probe, compare)
    if found is None or not agreement.equal:
        return False
    plan.tables[path] = [found]
    plan.recipes[module] = CountedModule(plan.chosen(found), counts)
    told = f"{agreement}{was}{plan.moved(found)}"
    plan.rows.append(Row(path, "tables", spec=found.spec.describe(), agreement=told, kernel="Rotation.at"))
    return True


def plan_method(plan: Plan, path: str, name: str) -> None:
    """A module that turns in a method of its own."""
    module = plan.model.get_submodule(path)
    function, near = getattr(type(module), name), nearest(path, list(plan.tables))
    models, reason = plan.reading(module, near)
    row = Row(path, name, reason=reason or taken(module, [name]))
    tables = tuple(dict.fromkeys(t for p in near for t in plan.tables[p]))
    if row.replaced and parameters_of(function)[0] not in CALLS:
        notes = "; ".join(dict.fromkeys(note for model in models for note in model.notes))
        row = replace(row, reason=f"it turns in a method of its own{f' ({notes})' if notes else ''}")
    elif row.replaced and not tables:
        row = replace(row, reason=NOT_AGREED)
    elif row.replaced:
        turning, agreement = compare_method(module, function, tables, plan.dtypes, plan.kernel)
        row = replace(row, spec=tables[0].spec.describe(), agreement=str(agreement))
        row = replace(row, kernel="apply_rotary") if agreement.equal else replace(row, reason=unlike(agreement))
        if row.replaced:
            plan.recipes[module] = TurningMethod(name, turning)
    plan.rows.append(row)


def plan_held(plan: Plan, path: str, module: nn.Module, name: str) -> None:
    """A table that a module keeps; no row for one that is not of its config."""
    models, _ = plan.reading(module)
    own = held_by(module, name)
    probe, _ = probe_of(module) if own.is_meta else (module, "")
    if probe is None:
        return
    compare = partial(compare_held, name=name, specs=specs_of(models))
    (found, agreement), was = compare_mended(plan.twins, path, module, probe, compare)
    if found is None or not agreement.equal:
        return
    told = f"{agreement}{was}{plan.moved(found.tables)}"
    spec = found.tables.spec.describe()
    plan.rows.append(Row(path, f"tables: {name}", spec=spec, agreement=told, kernel="Rotation.at"))
    recipe = replace(found, tables=plan.chosen(found.tables), dtype=torch.float32 if was else None)
    before = plan.recipes.get(module)
    plan.recipes[module] = recipe if before is None else Together((before, recipe))
