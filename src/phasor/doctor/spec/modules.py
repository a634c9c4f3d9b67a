"""Each module that forms cos and sin beside the spec that the config gives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature

import torch
from torch import Tensor, nn

from ...axes import OneAxis
from ...golden.judging.report import Finding
from ...integrations.agreement import Agreement
from ...integrations.compare import NEAR_AND_FAR, compare_tables, positions_for
from ...integrations.counted import compare_counted, counts_of
from ...integrations.plan import Plan
from ...integrations.specs import forward_specs, layer_types, of_kind, specs_of
from ...integrations.tables import Tables
from ...integrations.twin import probe_of, rebuilt
from ...reading.model import ModelRotary
from ...spec import RotarySpec
from ..report import Check
from .causes import OF_CONFIGS, way_out, worded
from .frequencies import damaged, fits, held_frequencies
from .judge import golden, judged
from .made import Made, expected, made
from .place import first_difference
from .turned import UNKNOWN

SWAPPED = "layer types swapped"
CHANGED = "config changed after loading"


@dataclass(frozen=True)
class Module:
    """A rotary module, for one layer type, with the specs that its tables may be and what the config gives besides."""

    path: str
    module: nn.Module
    probe: nn.Module
    layer_type: str | None
    specs: Sequence[RotarySpec]
    models: Sequence[ModelRotary]

    @property
    def check(self) -> Check:
        what = "tables" if self.layer_type is None else f"tables of {self.layer_type}"
        return Check(path=self.path, what=what, against="spec", verdict="sound", of="cos and sin")


def checks_of_module(plan: Plan, path: str, module: nn.Module) -> Iterator[Check]:
    """One check per layer type that the module has frequencies for."""
    blank = Check(path=path, what="tables", against="spec", verdict="not checked")
    models, reason = plan.reading(module)
    probe, problem = probe_of(module)
    if reason or probe is None:
        yield replace(blank, says=reason or problem)
        return
    plan.tables[path] = []
    forward = forward_specs(models)
    for layer_type in layer_types(module):
        one = Module(path, module, probe, layer_type, of_kind(layer_type, models, forward), models)
        yield _unmaterialised(one, plan.model) or _counted(one, plan) or _by_frequencies(one) or _compared(one, plan)


def _unmaterialised(one: Module, model: nn.Module) -> Check | None:
    """Frequencies without memory in a model whose weights have some."""
    held = held_frequencies(one.module, one.layer_type)
    if held is None or not held.is_meta or all(p.is_meta for p in model.parameters()):
        return None
    return _faulty(one.check, damaged(held, one.specs))


def _faulty(check: Check, found: tuple[str, str, str] | None) -> Check | None:
    if found is None:
        return None
    cause, says, way = found
    return replace(check, verdict="fault", cause=cause, says=says, way_out=way)


def _counted(one: Module, plan: Plan) -> Check | None:
    """A module that numbers its tokens itself."""
    counts = counts_of(one.probe)
    if counts is None:
        return None
    found, agreement = compare_counted(one.probe, counts, one.specs, plan.dtypes)
    if found is None or not agreement.close:
        return None
    plan.tables[one.path].append(found)
    return replace(one.check, size=agreement.difference)


def _by_frequencies(one: Module) -> Check | None:
    """A module that takes no positions: its frequencies alone can be compared."""
    takes, held = list(signature(one.probe.forward).parameters), held_frequencies(one.probe, one.layer_type)
    if "position_ids" in takes:
        return None
    why = f"it forms its tables from {', '.join(takes) or 'nothing'}, not from position_ids"
    if held is None:
        return replace(one.check, verdict="not checked", says=why)
    check = replace(one.check, what="frequencies", of="inv_freq")
    if (broken := _faulty(check, damaged(held, one.specs))) is not None:
        return broken
    if fits(held, one.specs):
        return check
    return replace(check, verdict="not checked", says=f"{why}, and its frequencies have a form that is not known")


def _compared(one: Module, plan: Plan) -> Check:
    found, agreement = compare_tables(one.probe, one.layer_type, one.specs, plan.dtypes[:1])
    if found is not None and agreement.close:
        plan.tables[one.path].append(found)
        return replace(one.check, size=agreement.difference)
    spec = found.spec if found is not None else one.specs[0]
    positions = next(positions_for(spec, torch.device("cpu"))).squeeze(1)
    theirs = None if spec.second is not None else made(one.probe, one.layer_type, spec, positions)
    if theirs is not None:  # what turns is judged by right tables of this form
        rounded = spec.tables in ("activation", "rounded")
        plan.tables[one.path].append(Tables(spec, theirs.form, rounded, coordinates_last=theirs.last))
    held = held_frequencies(one.probe, one.layer_type)
    if held is not None and (broken := _faulty(one.check, damaged(held, one.specs))) is not None:
        return _placed(broken, one, spec, theirs, positions)
    if theirs is None:
        return replace(one.check, verdict="not checked", says="its result is not cos and sin of its positions")
    if theirs.pairs != spec.pairs:
        says = f"it forms {theirs.pairs} pairs, and the config says {spec.pairs}"
        return replace(one.check, verdict="fault", cause="rotary width", says=says, way_out=way_out("rotary width"))
    return _judged(one, plan, spec, theirs, positions)


def _judged(one: Module, plan: Plan, spec: RotarySpec, theirs: Made, positions: Tensor) -> Check:
    """Whether tables that are not bit for bit those of the spec are wrong, and why."""
    if one.layer_type is not None and all(one.layer_type not in m.layer_types for m in one.models):
        says = f"no layer of the config is of the kind {one.layer_type!r}, so nothing says what its tables are"
        return replace(one.check, verdict="not checked", says=says)
    if (other := _of_another_type(one, plan)) is not None:
        check = replace(one.check, verdict="fault", cause=SWAPPED, says=other, way_out=way_out(SWAPPED))
        return _placed(check, one, spec, theirs, positions)
    given: dict[str, Tensor] = {"model.float32.cos": theirs.cos, "model.float32.sin": theirs.sin}
    held = held_frequencies(one.probe, one.layer_type)
    if held is not None and held.shape == (spec.pairs,):
        given["model.inv_freq"] = held.float().cpu()
    at = positions[0] if spec.axes.count == 1 else positions
    finding = judged(golden(one.models[0], spec, at), given)
    if finding is not None and finding.cause == UNKNOWN and spec.axes.count > 1:
        finding = _of_text(one, spec) or finding
    if finding is None:
        cos, sin = expected(spec, positions)
        size = max((theirs.cos - cos).abs().max().item(), (theirs.sin - sin).abs().max().item())
        return replace(one.check, size=size, says="but for the rounding of angles")
    cause, says = worded(finding)
    origin = _origin(one, plan, cause)
    cause = f"{cause}, {CHANGED}" if origin == CHANGED else cause
    says = f"{says}; {origin}" if origin not in ("", CHANGED) else says
    check = replace(one.check, verdict="fault", cause=cause, says=says, way_out=way_out(cause))
    return _placed(check, one, spec, theirs, positions)


def _of_text(one: Module, spec: RotarySpec) -> Finding | None:
    """What is wrong where all axes of a position agree, as in text: there more is known about positions."""
    if any(rung != (i, spec.pairs) for i, rung in enumerate(spec.axes.rung_of_pair(spec.pairs))):
        return None
    at = torch.tensor(NEAR_AND_FAR)
    theirs = made(one.probe, one.layer_type, spec, at.expand(spec.axes.count, -1))
    if theirs is None or theirs.pairs != spec.pairs:
        return None
    vectors = golden(one.models[0], spec.replace(axes=OneAxis()), at)
    return judged(vectors, {"model.float32.cos": theirs.cos, "model.float32.sin": theirs.sin})


def _placed(check: Check, one: Module, spec: RotarySpec, theirs: Made | None, positions: Tensor) -> Check:
    """With the size of the difference, and the first position and pair where it shows."""
    if theirs is None or theirs.pairs != spec.pairs:
        return check
    size, position, pair = first_difference(one.probe, one.layer_type, spec, theirs, positions)
    return replace(check, size=size, position=position, pair=pair)


def _of_another_type(one: Module, plan: Plan) -> str | None:
    """That the tables are those of another kind of layer of the same model."""
    others = [s.replace(reverse=False) for s in specs_of(one.models) if s.replace(reverse=False) not in one.specs]
    found, agreement = compare_tables(one.probe, one.layer_type, others, plan.dtypes[:1])
    if found is None or not agreement.close:
        return None
    words = {w for m in one.models for s, w in zip(m.layers, m.layer_types, strict=True) if s == found.spec}
    return f"these are the tables of {' and '.join(sorted(words)) or 'another kind of layer'}"


def _origin(one: Module, plan: Plan, cause: str) -> str:
    """Where a module has its wrong tables from: its class, its buffers, or a config that was another."""
    try:
        twin = rebuilt(one.module)
    except ValueError:
        return ""
    found, agreement = compare_tables(twin, one.layer_type, one.specs, plan.dtypes[:1])
    if found is None or not agreement.close:
        return f"{type(one.module).__name__} makes that of the config itself"
    held, prefix = held_frequencies(one.module, one.layer_type), f"{one.layer_type}_" if one.layer_type else ""
    first = one.module._buffers.get(f"{prefix}original_inv_freq")
    own = twin._buffers.get(f"{prefix}original_inv_freq")
    if held is None or first is None or own is None or held.is_meta:
        return ""
    types = [getattr(m, "rope_type", None) for m in (one.module, twin)]
    same = first.shape == held.shape and Agreement.of(first, held).close
    if types[0] != types[1] or (same and not torch.equal(first, own) and cause in OF_CONFIGS):
        return CHANGED
    if not same and torch.equal(first, own):
        return "its buffer was overwritten; the one beside it still holds what the config says"
    return ""
