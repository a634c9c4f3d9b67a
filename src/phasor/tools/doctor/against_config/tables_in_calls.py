"""The tables that attentions are given in real calls, beside those of the spec at the positions of the call.

What a rotary module forms when it is asked is one thing, what reaches attention another: hooks, wrappers, modules that
nobody knows, and layers that are given the tables of others stand between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ....rotary.model_rotary import ModelRotary
from ....rotary.spec import RotarySpec
from ...patch.reading import specs_of, specs_of_layer
from ...patch.sites import PatchSite, nearest
from ..observation import CallRow, Observation
from ..report import Check
from .causes import way_out, worded
from .positions import GIVEN
from .rotary_module import ModuleTables, per_pair_of
from .wrong_tables import judged_by, vectors_of, wrong_at

WHAT = "tables that reach it"


def _of_given(caller: PatchSite, rows: Sequence[CallRow], own: Sequence[ModelRotary]) -> Check | None:
    """Of one attention, by the rows of its calls; None where nothing could be compared."""
    specs = [s for s in specs_of_layer(caller.module, own) if s is not None] or specs_of(own)
    specs = [s.replace(reverse=False) for s in specs if s.second is None and not s.learned]
    specs = [s for s in specs if s.coordinates != "real"]
    checks = [one for spec in specs if (one := _beside(caller, spec, rows, own[0])) is not None]
    return next((check for check in checks if check.verdict == "right"), checks[0] if checks else None)


def _beside(caller: PatchSite, spec: RotarySpec, rows: Sequence[CallRow], model: ModelRotary) -> Check | None:
    size, compared = 0.0, False
    for row in rows:
        if not _known(spec, row):
            continue
        theirs = per_pair_of(row.tables, spec, len(row.positions))
        if theirs is None or theirs.pairs != spec.pairs:
            continue
        compared = True
        at = row.positions.cpu().expand(spec.axes.count, -1)
        apart, wrong = wrong_at(theirs, spec, at, _eps_of(row.tables))
        size = max(size, apart.max().item())
        if wrong.any():
            return _fault(caller, spec, model, theirs, at, wrong, size)
    check = Check(where=caller.path, what=WHAT, against="spec", verdict="right")
    return replace(check, difference=check.apart(size=size, of="cos and sin")) if compared else None


def _known(spec: RotarySpec, row: CallRow) -> bool:
    """Whether the frequencies of a row follow from its positions: not where another row of its call has chosen them."""
    if spec.scaling is None or not spec.length_dependent:
        return True
    trained = spec.scaling.trained_length or 0
    inside = row.last < trained
    return inside or (spec.scaling.two_regimes and int(row.positions.max()) >= trained)


def _eps_of(tables: Any) -> float:
    first = tables if isinstance(tables, Tensor) else tables[0]
    return torch.finfo(first.dtype).eps if first.dtype in (torch.bfloat16, torch.float16) else 0.0


def _fault(
    caller: PatchSite,
    spec: RotarySpec,
    model: ModelRotary,
    theirs: ModuleTables,
    at: Tensor,
    wrong: Tensor,
    size: float,
) -> Check:
    vectors = vectors_of(model, spec, at[0] if spec.axes.count == 1 else at)
    finding = judged_by(vectors, {"model.float32.cos": theirs.cos, "model.float32.sin": theirs.sin})
    cause, says = worded(finding) if finding is not None else ("half precision", "they are coarser than float32")
    token = int(wrong.any(1).nonzero()[0])
    check = Check(
        where=caller.path, what=WHAT, against="spec", verdict="wrong", cause=cause, way_out=way_out(cause),
        reason=f"in a real call the tables are not those of the config at its positions: {says}",
    )  # fmt: skip
    pair = int(wrong[token].nonzero()[0])
    difference = check.apart(size=size, of="cos and sin", position=float(at[0, token]), pair=pair)
    return replace(check, difference=difference)


def with_tables(observed: Observation, checks: Sequence[Check], others: Sequence[Check]) -> Iterator[Check]:
    """The checks of attentions, each in place of which stands the fault of the tables that reached it, if any.

    Where a rotary module is known, its positions must have been seen to be right; and a fault of a module, or of
    positions, is told there once. Where the tables of no call and no module could be compared, a last check says so.
    """
    reading, calls = observed.reading, observed.calls
    told = any(one.verdict == "wrong" for one in others)
    following = {one.where for one in others if one.what == GIVEN and one.verdict == "right"}
    compared = any(
        one.what.startswith(("tables", "frequencies", "table ")) and one.verdict == "right" for one in others
    )
    for check, caller in zip(checks, calls.attentions, strict=True):
        near = nearest(caller.path, list(reading.tables))
        own, reason = reading.models_of(caller.module, near)
        known = not near or any(path in following for path in near)
        other = None
        if caller.module in calls.tables and known and not told and not reason:
            other = _of_given(caller, calls.tables[caller.module], own)
        compared = compared or other is not None
        yield other if other is not None and other.verdict == "wrong" and check.verdict != "wrong" else check
    if not compared and not told and any(check.verdict == "right" for check in checks):
        says = "no module that forms cos and sin is known, and the tables of real calls could not be compared"
        yield Check(what="tables", against="spec", verdict="not shown", reason=says, needed=True)
