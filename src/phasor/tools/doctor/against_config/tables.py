"""The tables that a model forms or keeps, beside those of the spec that the config gives."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature

from torch import nn

from ....support.findings import Difference
from ...patch.compare import best_of, compare_self_numbered, compare_tables, difference_of
from ...patch.damage import HALVES, name_of
from ...patch.reading import ModelReading, specs_of
from ...patch.tables import StoredTable, Tables, numbering_of, stored_table
from ..observation import Observation
from ..report import Check
from .causes import way_out
from .rotary_module import LOAD, Module, by_layer_type, fits, held_frequencies


def check_tables(observed: Observation, before: Sequence[Check] = ()) -> Iterator[Check]:
    """Each module that forms cos and sin, and each stored table; `ModelReading.tables` learns what each forms."""
    for path, module in observed.modules.items():
        yield from _of_module(observed.reading, path, module)
    for site in observed.stored:
        yield from _of_stored(observed.reading, site.path, site.module, site.name)


def _of_module(reading: ModelReading, path: str, module: nn.Module) -> Iterator[Check]:
    """One check per layer type that the module has frequencies for."""
    found = by_layer_type(reading, path, module)
    if isinstance(found, str):
        yield Check(where=path, what="tables", against="spec", verdict="not shown", reason=found)
        return
    reading.tables[path] = []
    for one in found:
        yield (
            _unmaterialised(one, reading.model)
            or _counted(one, reading)
            or _by_frequencies(one)
            or _compared(one, reading)
        )


def _unmaterialised(one: Module, model: nn.Module) -> Check | None:
    """Frequencies without memory in a model whose weights have some."""
    frequencies = held_frequencies(one.module, one.layer_type)
    if frequencies is None or not frequencies.is_meta or all(p.is_meta for p in model.parameters()):
        return None
    return one.broken(one.check, frequencies)


def _counted(one: Module, reading: ModelReading) -> Check | None:
    """A module that numbers its tokens itself."""
    counts = numbering_of(one.probe)
    if counts is None:
        return None
    tables, agreement = compare_self_numbered(one.probe, counts, one.specs, reading.dtypes)
    if tables is None or not agreement.close:
        return None
    reading.tables[one.path].append(tables)
    return replace(one.check, difference=one.check.apart(size=agreement.size))


def _by_frequencies(one: Module) -> Check | None:
    """A module that takes no positions: its frequencies alone can be compared."""
    parameters, frequencies = signature(one.probe.forward).parameters, held_frequencies(one.probe, one.layer_type)
    takes, wrapped = list(parameters), any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    if "position_ids" in takes or wrapped:  # by a function that hands on whatever it is given
        return None
    why = f"it forms its tables from {', '.join(takes) or 'nothing'}, not from position_ids"
    if frequencies is None:
        return replace(one.check, verdict="not shown", reason=why)
    check = replace(one.check, what="frequencies", difference=one.check.apart(of="inv_freq"))
    if (broken := one.broken(check, frequencies)) is not None:
        return broken
    if fits(frequencies, one.specs):
        return check
    return replace(check, verdict="not shown", reason=f"{why}, and its frequencies have a form that is not known")


def _compared(one: Module, reading: ModelReading) -> Check:
    tables, agreement = compare_tables(one.probe, one.layer_type, one.specs, reading.dtypes[:1])
    if tables is not None and agreement.close:
        reading.tables[one.path].append(tables)
        return replace(one.check, difference=one.check.apart(size=agreement.size))
    from .wrong_tables import judged  # which imports much, and is asked rarely

    return judged(one, reading, one.specs[0] if tables is None else tables.spec)


def _of_stored(reading: ModelReading, path: str, module: nn.Module, name: str) -> Iterator[Check]:
    """One check of a table whose width is that of a spec; none of any other, which may be of absolute positions.

    Such tables hold all sines before all cosines (GPT-J, RoFormer).
    """
    models, reason = reading.models_of(module)
    own = stored_table(module, name)
    fitting = [s for s in specs_of(models) if s.axes.count == 1 and 2 * s.pairs == own.shape[-1]]
    if reason or not fitting or own.is_meta:
        return
    check = Check(
        where=path, what=f"table {name}", against="spec", verdict="right", difference=Difference(of="cos and sin")
    )
    candidates = (StoredTable(Tables(spec, "half", rounded=False), name, len(own)) for spec in fitting)
    best, agreement = best_of((table, difference_of(own, table.table().to(own.dtype))) for table in candidates)
    if best is None or not agreement.close:
        from .wrong_tables import judged_stored

        yield judged_stored(check, own, fitting[0], models[0])
        return
    check = replace(check, difference=check.apart(size=agreement.size))
    declared = models[0].max_position
    if own.dtype in HALVES and next(reading.model.parameters()).dtype not in HALVES:
        cause = f"tables rounded to {name_of(own.dtype)}"
        yield replace(check, verdict="wrong", cause=cause, reason="the model computes in float32", way_out=LOAD)
    elif declared and len(own) < declared:
        says = f"it has {len(own):,} rows, and the config declares {declared:,} positions"
        check = replace(check, verdict="wrong", cause="table of another length", reason=says)
        yield replace(check, way_out=way_out("positions"), difference=check.apart(position=float(len(own))))
    else:
        yield check
