"""Tables of a rotary module that are not bit for bit those of its config: whether they are wrong, where and why."""

from dataclasses import replace

import torch
from torch import Tensor

from ....rotary.axes import OneAxis
from ....rotary.spec import RotarySpec
from ...golden.report import TensorFinding
from ...patch.compare import NEAR_AND_FAR, compare_tables, difference_of, positions_for
from ...patch.reading import ModelReading, forward_specs
from ...patch.rebuilt import rebuilt_module
from ...patch.tables import Tables
from ..report import Check
from . import judge
from .causes import OF_CONFIGS, way_out, worded
from .frequencies import held_frequencies
from .module import Module
from .module_tables import ModuleTables, expected, tables_of_module
from .place import first_difference
from .rotated_heads import UNKNOWN

SWAPPED = "layer types swapped"
CHANGED = "config changed after loading"


def judged(one: Module, plan: ModelReading, spec: RotarySpec) -> Check:
    """Beside ``spec``, which its tables should be: frequencies that are broken first, then every known mistake."""
    positions = next(positions_for(spec, torch.device("cpu"))).squeeze(1)
    theirs = None if spec.second is not None else tables_of_module(one.probe, one.layer_type, spec, positions)
    if theirs is not None:  # what rotates is judged by right tables of this form
        rounded = spec.tables in ("activation", "rounded")
        plan.tables[one.path].append(Tables(spec, theirs.form, rounded, coordinates_last=theirs.last))
    if (broken := one.broken(one.check, held_frequencies(one.probe, one.layer_type))) is not None:
        return _placed(broken, one, spec, theirs, positions)
    if theirs is None:
        return replace(one.check, verdict="not shown", reason="its result is not cos and sin of its positions")
    if theirs.pairs != spec.pairs:
        says = f"it forms {theirs.pairs} pairs, and the config says {spec.pairs}"
        return replace(one.check, verdict="wrong", cause="rotary width", reason=says, way_out=way_out("rotary width"))
    return _by_golden(one, plan, spec, theirs, positions)


def _by_golden(one: Module, plan: ModelReading, spec: RotarySpec, theirs: ModuleTables, positions: Tensor) -> Check:
    """Whether tables that are not bit for bit those of the spec are wrong, and why."""
    if one.layer_type is not None and all(one.layer_type not in m.layer_types for m in one.models):
        says = f"no layer of the config is of the kind {one.layer_type!r}, so nothing says what its tables are"
        return replace(one.check, verdict="not shown", reason=says)
    if (other := _of_another_type(one, plan)) is not None:
        check = replace(one.check, verdict="wrong", cause=SWAPPED, reason=other, way_out=way_out(SWAPPED))
        return _placed(check, one, spec, theirs, positions)
    tensors: dict[str, Tensor] = {"model.float32.cos": theirs.cos, "model.float32.sin": theirs.sin}
    frequencies = held_frequencies(one.probe, one.layer_type)
    if frequencies is not None and frequencies.shape == (spec.pairs,):
        tensors["model.inv_freq"] = frequencies.float().cpu()
    at = positions[0] if spec.axes.count == 1 else positions
    finding = judge.judged(judge.golden(one.models[0], spec, at), tensors)
    if finding is not None and finding.cause == UNKNOWN and spec.axes.count > 1:
        finding = _of_text(one, spec) or finding
    if finding is None and (fault := beyond(one, spec)) is not None:
        return fault
    if finding is None:
        cos, sin = expected(spec, positions)
        size = max((theirs.cos - cos).abs().max().item(), (theirs.sin - sin).abs().max().item())
        return replace(
            one.check,
            reason="but for the rounding of angles",
            difference=one.check.apart(size=size),
        )
    cause, says = worded(finding)
    origin = _origin(one, plan, cause)
    cause = f"{cause}, {CHANGED}" if origin == CHANGED else cause
    says = f"{says}; {origin}" if origin not in ("", CHANGED) else says
    check = replace(one.check, verdict="wrong", cause=cause, reason=says, way_out=way_out(cause))
    return _placed(check, one, spec, theirs, positions)


def beyond(one: Module, spec: RotarySpec) -> Check | None:
    """The fault of tables that are right inside the trained length and wrong beyond it; None for all others.

    Only of scalings with two regimes (LongRoPE): what a module with dynamic NTK does beyond its length depends on its
    earlier calls.
    """
    if spec.scaling is None or not spec.scaling.two_regimes or spec.second is not None:
        return None
    positions = torch.tensor(NEAR_AND_FAR).expand(spec.axes.count, -1)
    theirs = tables_of_module(one.probe, one.layer_type, spec, positions)
    if theirs is None or theirs.pairs != spec.pairs:
        return None
    size, position, pair = first_difference(one.probe, one.layer_type, spec, theirs, positions)
    if position is None:
        return None
    says = f"right up to the trained length of {spec.scaling.trained_length:,}, wrong in a call that is longer"
    difference = one.check.apart(size=size, position=position, pair=pair)
    cause = "length of the frequencies"
    return replace(one.check, verdict="wrong", cause=cause, reason=says, way_out=way_out(cause), difference=difference)


def _of_text(one: Module, spec: RotarySpec) -> TensorFinding | None:
    """What is wrong where all axes of a position agree, as in text: there more is known about positions."""
    if any(rung != (i, spec.pairs) for i, rung in enumerate(spec.axes.rung_of_pair(spec.pairs))):
        return None
    at = torch.tensor(NEAR_AND_FAR)
    theirs = tables_of_module(one.probe, one.layer_type, spec, at.expand(spec.axes.count, -1))
    if theirs is None or theirs.pairs != spec.pairs:
        return None
    vectors = judge.golden(one.models[0], spec.replace(axes=OneAxis()), at)
    return judge.judged(vectors, {"model.float32.cos": theirs.cos, "model.float32.sin": theirs.sin})


def _placed(check: Check, one: Module, spec: RotarySpec, theirs: ModuleTables | None, positions: Tensor) -> Check:
    """With the size of the difference, and the first position and pair where it shows."""
    if theirs is None or theirs.pairs != spec.pairs:
        return check
    size, position, pair = first_difference(one.probe, one.layer_type, spec, theirs, positions)
    return replace(check, difference=check.apart(size=size, position=position, pair=pair))


def _of_another_type(one: Module, plan: ModelReading) -> str | None:
    """That the tables are those of another kind of layer of the same model."""
    others = [spec for spec in forward_specs(one.models) if spec not in one.specs]
    tables, agreement = compare_tables(one.probe, one.layer_type, others, plan.dtypes[:1])
    if tables is None or not agreement.close:
        return None
    words = {w for m in one.models for s, w in zip(m.layers, m.layer_types, strict=True) if s == tables.spec}
    return f"these are the tables of {' and '.join(sorted(words)) or 'another kind of layer'}"


def _origin(one: Module, plan: ModelReading, cause: str) -> str:
    """Where a module has its wrong tables from: its class, its buffers, or a config that was another."""
    try:
        twin = rebuilt_module(one.module)
    except ValueError:
        return ""
    tables, agreement = compare_tables(twin, one.layer_type, one.specs, plan.dtypes[:1])
    if tables is None or not agreement.close:
        return f"{type(one.module).__name__} makes that of the config itself"
    frequencies, prefix = held_frequencies(one.module, one.layer_type), f"{one.layer_type}_" if one.layer_type else ""
    first = one.module._buffers.get(f"{prefix}original_inv_freq")
    own = twin._buffers.get(f"{prefix}original_inv_freq")
    if frequencies is None or first is None or own is None or frequencies.is_meta:
        return ""
    types = [getattr(m, "rope_type", None) for m in (one.module, twin)]
    same = first.shape == frequencies.shape and difference_of(first, frequencies).close
    if types[0] != types[1] or (same and not torch.equal(first, own) and cause in OF_CONFIGS):
        return CHANGED
    if not same and torch.equal(first, own):
        return "its buffer was overwritten; the one beside it still holds what the config says"
    return ""
