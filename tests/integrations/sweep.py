"""One model type under `patch`: built small, run on all inputs that it takes, and compared call by call."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from torch import Tensor, nn

from conformance.given import build
from conformance.inputs import Inputs, halved, in_half, results, variants
from phasor.tools.patch import PatchReport, patch, unpatch
from phasor.tools.patch.reading import ModelReading

from .traced import Trace, own_code_contiguous, traced

HELD = ("tables: embed_positions", "tables: weight")
OWN_TABLES = "equal, by the model's own tables"
EQUAL, NOT_BUILT, NEAR = "equal", "not built", "DIFFERS: in rounding, by"


@dataclasses.dataclass
class Fate:
    """What became of one type.

    ``outcome``: ``"equal"``, ``"not built: ..."``, ``"not replaced: ..."``, or what differs. ``inputs``: by name,
    ``"equal"`` or why the model does not take them. ``kept``: what stays the model's own, and why. ``unreached``: what
    was replaced and none of the inputs runs.
    """

    outcome: str
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    kept: list[str] = dataclasses.field(default_factory=list)
    unreached: list[str] = dataclasses.field(default_factory=list)
    calls: int = 0


def fate_of(model_type: str) -> Fate:
    try:
        model = build(model_type)
        given = dict(variants(model_type, model))
        results(model, given["usual"])
    except Exception as error:
        return Fate(f"{NOT_BUILT}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])
    before = by_own_code(model, given)
    with traced() as trace:
        report = patch(model)
        found = {name: _difference(before[name], ran(model, given[name])) for name in given}
        half, why_not = _in_half(model_type, given["usual"])
    found |= {"bfloat16": half or why_not}
    return Fate(
        outcome(model, report, trace, found, given, before),
        found,
        [f"{row.path} {row.what}: {row.reason}" for row in report.rows if not row.replaced],
        sorted(_unreached(report, trace)),
        len(trace.calls),
    )


def ran(model: nn.Module, inputs: Inputs) -> list[Tensor] | str:
    """The results, or why the model does not take these inputs."""
    try:
        return results(model, inputs)
    except Exception as error:
        return f"not taken: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]


def by_own_code(model: nn.Module, given: dict[str, Inputs]) -> dict[str, list[Tensor] | str]:
    """The results of a model that runs its own code, but for the strides of what it turns."""
    with own_code_contiguous():
        report = patch(model)
        before = {name: ran(model, inputs) for name, inputs in given.items()}
    if report.replaced:
        unpatch(model)
    return before


def _difference(before: list[Tensor] | str, after: list[Tensor] | str) -> str:
    if isinstance(before, str):
        return before
    if isinstance(after, str):
        return f"DIFFERS: only the patched model does not run: {after}"
    if len(before) != len(after) or not before:
        return "DIFFERS: another number of results" if before else "not taken: it has no result to compare"
    gaps = [
        (a.double() - b.double()).abs().nan_to_num().max().item()
        for a, b in zip(before, after, strict=True)
        if a.numel()
    ]
    gap, most = max(gaps, default=0.0), max((a.abs().max().item() for a in before if a.numel()), default=0.0)
    if gap == 0:
        return EQUAL
    return f"{NEAR if gap <= 1e-5 * max(most, 1.0) else 'DIFFERS: by'} {gap:.2g}"


def _in_half(model_type: str, usual: Inputs) -> tuple[str, str]:
    """How a model in bfloat16 does, or why there is none."""
    model = in_half(build(model_type))
    inputs = halved(usual)
    before = by_own_code(model, {"half": inputs})["half"]
    if isinstance(before, str):
        return "", before
    patch(model)
    return _difference(before, ran(model, inputs)), ""


def outcome(
    model: nn.Module,
    report: PatchReport,
    trace: Trace,
    found: dict[str, str],
    given: dict[str, Inputs],
    before: dict[str, list[Tensor] | str],
) -> str:
    bits = all(call.agreement.exact for call in trace.calls.values())
    if bits and (near := [name for name, said in found.items() if said.startswith(NEAR)]):
        # phasor's results are contiguous, and the sums of a product of matrices then have another order
        found |= dict.fromkeys(near, "equal to rounding; every call is bit-equal")
    if wrong := [f"{name} {said}" for name, said in found.items() if said.startswith("DIFFERS")]:
        return "; ".join(wrong)
    if wrong := [
        f"{c.module}.{c.what} on {c.shapes}: {c.agreement}" for c in trace.calls.values() if not c.agreement.exact
    ]:
        return f"DIFFERS in a call: {wrong[0]}"
    if not report.replaced:
        return f"not replaced: {'; '.join(dict.fromkeys(row.reason for row in report.rows))}"
    unpatch(model)
    formed = any(row.replaced and row.what.startswith("tables") for row in report.rows)
    if not formed:
        return OWN_TABLES
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(ModelReading, "with_chosen_angles", _wrong)
        patch(model)
    moved = ""
    for name, inputs in given.items():  # words may not turn where images do
        moved = _difference(before[name], ran(model, inputs))
        if moved.startswith(("DIFFERS: by", NEAR)):
            return EQUAL
    return f"NO EFFECT of angles that are five percent off: {moved}"


def _wrong(plan: ModelReading, tables: Any) -> Any:
    return dataclasses.replace(tables, spec=tables.spec.replace(position_scale=1.05 * tables.spec.position_scale))


def _unreached(report: PatchReport, trace: Trace) -> Iterator[str]:
    """What was replaced and never called; a table that is kept is looked at and not called."""
    modules = dict(report.model.named_modules())
    called = [row for row in report.rows if row.replaced and not row.what.startswith(HELD)]
    names = {(type(modules[row.path]).__name__, row.what.partition(":")[0]) for row in called}
    yield from (f"{owner}.{what}" for owner, what in names - trace.reached)
