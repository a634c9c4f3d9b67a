"""Each module that forms cos and sin beside the spec that the config gives."""

from collections.abc import Iterator
from dataclasses import replace
from inspect import signature

from torch import nn

from ...patch.compare import compare_self_numbered, compare_tables
from ...patch.reading import ModelReading, forward_specs, layer_types, of_layer_type
from ...patch.rebuilt import probe_of
from ...patch.tables import numbering_of
from ..report import Check
from .frequencies import fits, held_frequencies
from .module import Module


def checks_of_module(plan: ModelReading, path: str, module: nn.Module) -> Iterator[Check]:
    """One check per layer type that the module has frequencies for."""
    blank = Check(where=path, what="tables", against="spec", verdict="not shown")
    models, reason = plan.models_of(module)
    probe, problem = probe_of(module)
    if reason or probe is None:
        yield replace(blank, reason=reason or problem)
        return
    plan.tables[path] = []
    forward = forward_specs(models)
    for layer_type in layer_types(module):
        one = Module(path, module, probe, layer_type, of_layer_type(layer_type, models, forward), models)
        yield _unmaterialised(one, plan.model) or _counted(one, plan) or _by_frequencies(one) or _compared(one, plan)


def _unmaterialised(one: Module, model: nn.Module) -> Check | None:
    """Frequencies without memory in a model whose weights have some."""
    frequencies = held_frequencies(one.module, one.layer_type)
    if frequencies is None or not frequencies.is_meta or all(p.is_meta for p in model.parameters()):
        return None
    return one.broken(one.check, frequencies)


def _counted(one: Module, plan: ModelReading) -> Check | None:
    """A module that numbers its tokens itself."""
    counts = numbering_of(one.probe)
    if counts is None:
        return None
    tables, agreement = compare_self_numbered(one.probe, counts, one.specs, plan.dtypes)
    if tables is None or not agreement.close:
        return None
    plan.tables[one.path].append(tables)
    return replace(one.check, difference=one.check.apart(size=agreement.size))


def _by_frequencies(one: Module) -> Check | None:
    """A module that takes no positions: its frequencies alone can be compared."""
    takes, frequencies = list(signature(one.probe.forward).parameters), held_frequencies(one.probe, one.layer_type)
    if "position_ids" in takes:
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


def _compared(one: Module, plan: ModelReading) -> Check:
    tables, agreement = compare_tables(one.probe, one.layer_type, one.specs, plan.dtypes[:1])
    if tables is not None and agreement.close:
        plan.tables[one.path].append(tables)
        return replace(one.check, difference=one.check.apart(size=agreement.size))
    from .why import judged  # which imports much, and is asked rarely

    return judged(one, plan, one.specs[0] if tables is None else tables.spec)
