"""Tables of a rotary module that are not bit for bit those of its config: whether they are wrong, where and why."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ....rotary.model_rotary import ModelRotary
from ....rotary.spec import RotarySpec
from ...golden.check import findings_of
from ...golden.folder import describe
from ...golden.layer_kinds import Kind
from ...golden.report import TensorFinding
from ...golden.tensors import PER_RADIAN, TABLE, tensors_of
from ...golden.vectors import Vectors
from ...patch.compare import NEAR_AND_FAR, compare_tables, difference_of, positions_for
from ...patch.reading import ModelReading, forward_specs
from ...patch.rebuilt import rebuilt_module
from ..deviation import SAME, Deviation, around, deviation
from ..report import Check
from .causes import OF_CONFIGS, way_out, worded
from .rotary_module import Module, ModuleTables, expected, held_frequencies, tables_of_module

UNKNOWN = "unknown"
SWAPPED = "layer types swapped"
CHANGED = "config changed after loading"
NAME = "layer"  # of the one kind of layers in vectors
TARGETS = ("q", "k")
TEXT = 256  # positions of a text, each of which is looked at
BLOCK = 4096  # positions that are looked at together


def judged(one: Module, reading: ModelReading, spec: RotarySpec) -> Check:
    """Beside ``spec``, which its tables should be: frequencies that are broken first, then every known mistake."""
    positions = next(positions_for(spec, torch.device("cpu"))).squeeze(1)
    theirs = None if spec.second is not None else tables_of_module(one.probe, one.layer_type, spec, positions)
    if theirs is not None:  # what rotates is judged by right tables of this form
        rounded = spec.tables in ("activation", "rounded")
        reading.tables[one.path].append(replace(theirs.tables, rounded=rounded))
    if (broken := one.broken(one.check, held_frequencies(one.probe, one.layer_type))) is not None:
        return _placed(broken, one, spec, theirs, positions)
    if theirs is None:
        return replace(one.check, verdict="not shown", reason="its result is not cos and sin of its positions")
    if theirs.pairs != spec.pairs:
        says = f"it forms {theirs.pairs} pairs, and the config says {spec.pairs}"
        return replace(one.check, verdict="wrong", cause="rotary width", reason=says, way_out=way_out("rotary width"))
    return _by_golden(one, reading, spec, theirs, positions)


def _by_golden(one: Module, reading: ModelReading, spec: RotarySpec, theirs: ModuleTables, positions: Tensor) -> Check:
    """Whether tables that are not bit for bit those of the spec are wrong, and why."""
    if one.layer_type is not None and all(one.layer_type not in m.layer_types for m in one.models):
        says = f"no layer of the config is of the kind {one.layer_type!r}, so nothing says what its tables are"
        return replace(one.check, verdict="not shown", reason=says)
    if (other := _of_another_type(one, reading)) is not None:
        check = replace(one.check, verdict="wrong", cause=SWAPPED, reason=other, way_out=way_out(SWAPPED))
        return _placed(check, one, spec, theirs, positions)
    tensors: dict[str, Tensor] = {"model.float32.cos": theirs.cos, "model.float32.sin": theirs.sin}
    frequencies = held_frequencies(one.probe, one.layer_type)
    if frequencies is not None and frequencies.shape == (spec.pairs,):
        tensors["model.inv_freq"] = frequencies.float().cpu()
    at = positions[0] if spec.axes.count == 1 else positions
    finding = judged_by(vectors_of(one.models[0], spec, at), tensors)
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
    if finding.cause in (UNKNOWN, "value") and (found := _by_values(one, spec)) is not None:
        cause, says = found.cause, found.says
    origin = _origin(one, reading, cause)
    cause = f"{cause}, {CHANGED}" if origin == CHANGED else cause
    says = f"{says}; {origin}" if origin not in ("", CHANGED) else says
    check = replace(one.check, verdict="wrong", cause=cause, reason=says, way_out=way_out(cause))
    return _placed(check, one, spec, theirs, positions)


def _by_values(one: Module, spec: RotarySpec) -> Deviation | None:
    """What the values themselves say where no known mistake gives them; None where they say no more."""
    inside = spec.scaling.trained_length if spec.length_dependent and spec.scaling else None
    at = torch.arange(min(TEXT, inside or TEXT)).expand(spec.axes.count, -1)
    theirs = tables_of_module(one.probe, one.layer_type, spec, at)
    if theirs is None or theirs.pairs != spec.pairs:
        return None
    both = ((theirs.cos, theirs.sin), expected(spec, at))
    seen, must = (torch.complex(cos.double(), sin.double()).T[None, None] for cos, sin in both)
    found = deviation(seen, must, around(must[0]), torch.ones_like(at[:1], dtype=torch.bool), SAME)
    return None if found is None or found.cause == "frequencies" else found


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


def _placed(check: Check, one: Module, spec: RotarySpec, theirs: ModuleTables | None, positions: Tensor) -> Check:
    """With the size of the difference, and the first position and pair where it shows."""
    if theirs is None or theirs.pairs != spec.pairs:
        return check
    size, position, pair = first_difference(one.probe, one.layer_type, spec, theirs, positions)
    return replace(check, difference=check.apart(size=size, position=position, pair=pair))


def _of_another_type(one: Module, reading: ModelReading) -> str | None:
    """That the tables are those of another kind of layer of the same model."""
    others = [spec for spec in forward_specs(one.models) if spec not in one.specs]
    tables, agreement = compare_tables(one.probe, one.layer_type, others, reading.dtypes[:1])
    if tables is None or not agreement.close:
        return None
    words = {w for m in one.models for s, w in zip(m.layers, m.layer_types, strict=True) if s == tables.spec}
    return f"these are the tables of {' and '.join(sorted(words)) or 'another kind of layer'}"


def _origin(one: Module, reading: ModelReading, cause: str) -> str:
    """Where a module has its wrong tables from: its class, its buffers, or a config that was another."""
    try:
        twin = rebuilt_module(one.module)
    except ValueError:
        return ""
    tables, agreement = compare_tables(twin, one.layer_type, one.specs, reading.dtypes[:1])
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


def judged_stored(check: Check, own: Tensor, spec: RotarySpec, model: ModelRotary) -> Check:
    """Of a table that a model keeps, which is not that of the spec."""
    at = torch.tensor([n for n in NEAR_AND_FAR if n < len(own)])
    sin, cos = own[at.to(own.device)].float().cpu().chunk(2, dim=-1)
    vectors = vectors_of(model, spec, at)
    finding = judged_by(vectors, {"model.float32.cos": cos.contiguous(), "model.float32.sin": sin.contiguous()})
    if finding is None:
        return replace(check, reason="but for the rounding of angles")
    cause, says = worded(finding)
    first = finding.difference
    position = first.position[0] if first is not None and isinstance(first.position, tuple) else None
    pair = None if first is None else first.pair
    check = replace(check, verdict="wrong", cause=cause, reason=says, way_out=way_out(cause))
    return replace(check, difference=check.apart(position=position, pair=pair))


def vectors_of(model: ModelRotary, spec: RotarySpec, positions: Tensor) -> Vectors:
    """The vectors of one spec at ``positions`` (``[S]``, or one row per axis)."""
    seq_len = spec.scaling.trained_length if spec.length_dependent and spec.scaling else None
    kind = Kind(name=NAME, layers=(0,), layer_type=NAME, spec=spec, own_angles=model.own_angles, seq_len=seq_len)
    arrays = {f"{NAME}.{n}": g for n, g in tensors_of(kind, positions, TARGETS, 0).items()}
    data = {**describe(model, [kind], arrays, 0), "targets": list(TARGETS)}
    return Vectors({NAME: kind}, {name: g.tensor for name, g in arrays.items()}, data)


def judged_by(vectors: Vectors, tensors: dict[str, Tensor]) -> TensorFinding | None:
    """The fault that golden's judging finds in tensors by their short names; None where all are right."""
    findings = findings_of(vectors, vectors.kinds[NAME], {f"{NAME}.{name}": tensor for name, tensor in tensors.items()})
    return next((f for f in findings if f.verdict == "wrong"), None)


def first_difference(
    module: nn.Module, layer_type: str | None, spec: RotarySpec, theirs: ModuleTables, positions: Tensor
) -> tuple[float, float | None, int | None]:
    """Size, first position (along the axis of its pair) and first pair; ``theirs`` are the tables at ``positions``."""
    apart, wrong = wrong_at(theirs, spec, positions)
    size = apart.max().item()
    if not wrong.any():
        return size, None, None
    order = positions.amax(0).argsort(stable=True)
    row = int(order[wrong[order].any(1).nonzero()[0]])
    pair = int(wrong[row].nonzero()[0])
    axis = spec.axes.axis_of_pair(spec.pairs)[pair] if spec.axes.count > 1 else 0
    coarse = float(positions[axis, row])
    if spec.coordinates == "real":
        return size, coarse, pair
    # every position up to there, all axes alike
    for start in range(0, int(coarse), BLOCK):
        at = torch.arange(start, min(start + BLOCK, int(coarse))).expand(spec.axes.count, -1)
        block = tables_of_module(module, layer_type, spec, at)
        if block is None or block.pairs != spec.pairs:
            break
        wrong = wrong_at(block, spec, at)[1]
        if wrong.any():
            row = int(wrong.any(1).nonzero()[0])
            return size, float(at[0, row]), int(wrong[row].nonzero()[0])
    return size, coarse, pair


def wrong_at(theirs: ModuleTables, spec: RotarySpec, positions: Tensor) -> tuple[Tensor, Tensor]:
    """``[S, P]``: how far cos and sin are off, and whether that is more than float32 angles may be."""
    cos, sin = expected(spec, positions)
    apart = torch.maximum((theirs.cos - cos).abs(), (theirs.sin - sin).abs()).nan_to_num(torch.inf)
    inside = spec.scaling.trained_length if spec.length_dependent and spec.scaling else None
    shares = torch.tensor(spec.axes.weights(spec.pairs), dtype=torch.float64)
    angles = torch.einsum("as,ap,p->sp", positions.abs().double(), shares.abs(), spec.inv_freq(inside).double())
    factor = spec.attention_factor(inside)
    return apart, apart > (TABLE + PER_RADIAN * angles * spec.position_scale) * factor
