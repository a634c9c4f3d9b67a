"""Tables that a model keeps, all sines before all cosines (GPT-J, RoFormer), beside those of the spec."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from ....support.findings import Difference
from ...patch.compare import NEAR_AND_FAR, best_of, difference_of
from ...patch.damage import HALVES, name_of
from ...patch.reading import ModelReading, specs_of
from ...patch.tables import StoredTable, Tables, stored_table
from ..report import Check
from .causes import way_out, worded
from .frequencies import LOAD
from .judge import golden, judged


def checks_of_held(plan: ModelReading, path: str, module: nn.Module, name: str) -> Iterator[Check]:
    """One check of a table whose width is that of a spec; none of any other, which may be of absolute positions."""
    models, reason = plan.models_of(module)
    own = stored_table(module, name)
    fitting = [s for s in specs_of(models) if s.axes.count == 1 and 2 * s.pairs == own.shape[-1]]
    if reason or not fitting or own.is_meta:
        return
    check = Check(
        where=path, what=f"table {name}", against="spec", verdict="right", difference=Difference(of="cos and sin")
    )
    candidates = (StoredTable(Tables(spec, "half", rounded=False), name, len(own)) for spec in fitting)
    best, agreement = best_of((table, difference_of(own, table.table().to(own.dtype))) for table in candidates)
    declared = models[0].max_position
    if best is not None and agreement.close:
        check = replace(check, difference=check.apart(size=agreement.size))
        half = own.dtype in HALVES and next(plan.model.parameters()).dtype not in HALVES
        if half:
            cause = f"tables rounded to {name_of(own.dtype)}"
            yield replace(check, verdict="wrong", cause=cause, reason="the model computes in float32", way_out=LOAD)
        elif declared and len(own) < declared:
            says = f"it has {len(own):,} rows, and the config declares {declared:,} positions"
            check = replace(check, verdict="wrong", cause="table of another length", reason=says)
            yield replace(
                check,
                way_out=way_out("positions"),
                difference=check.apart(position=float(len(own))),
            )
        else:
            yield check
        return
    at = torch.tensor([n for n in NEAR_AND_FAR if n < len(own)])
    sin, cos = own[at.to(own.device)].float().cpu().chunk(2, dim=-1)
    vectors = golden(models[0], fitting[0], at)
    finding = judged(vectors, {"model.float32.cos": cos.contiguous(), "model.float32.sin": sin.contiguous()})
    if finding is None:
        yield replace(check, reason="but for the rounding of angles")
        return
    cause, says = worded(finding)
    first = finding.difference
    position = first.position[0] if first is not None and isinstance(first.position, tuple) else None
    pair = None if first is None else first.pair
    check = replace(
        check,
        verdict="wrong",
        cause=cause,
        reason=says,
        difference=check.apart(position=position, pair=pair),
    )
    yield replace(check, way_out=way_out(cause))
