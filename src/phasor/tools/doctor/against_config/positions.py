"""The positions that rotary modules are given in real calls: counted by the model, given to it, and after a cache."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ....support.findings import Difference
from ..observation import Observation, PositionRun
from ..report import Check
from .causes import way_out

GIVEN = "positions given to the model"


def check_positions(observed: Observation, before: Sequence[Check] = ()) -> Iterator[Check]:
    """Three checks of each rotary module that is given positions of text."""
    starts: dict[nn.Module, int] = {}
    for run in observed.calls.positions:
        for path, module in observed.modules.items():
            check = Check(
                where=path, what=run.what, against="spec", verdict="not shown", difference=Difference(of="positions")
            )
            if run.why_not:
                yield replace(check, reason=run.why_not)
                continue
            calls = run.given.get(module)
            if calls is None or any(at.shape[-1] != len(run.meant[n]) for n, at in calls):
                continue
            if run.what == GIVEN:
                count = observed.calls.positions[0].meant[0]
                yield _apart(check, module, run, count) or _judged(check, calls, run.meant)
                continue
            start = starts.setdefault(module, _start(calls[0][1], run.meant[0]))
            judgement = _judged(check, calls, [at + start for at in run.meant])
            counted = start and judgement.verdict == "right"
            yield replace(judgement, reason=f"counted from {start}") if counted else judgement


def _start(rows: Tensor, count: Tensor) -> int:
    """From where a model counts: PaliGemma from 1, which changes no distance."""
    by = rows - count
    return int(by[0, 0]) if bool((by == by[0, 0]).all()) else 0


def _apart(check: Check, module: nn.Module, run: PositionRun, count: Tensor) -> Check | None:
    """A model inside the model, with a config of its own, that counts for itself while others use what is given."""
    config, (far,) = getattr(module, "config", None), run.meant
    following = [m for m, calls in run.given.items() if all(_are(at, far) for _, at in calls)]
    alone = following and config is not None and all(getattr(m, "config", None) is not config for m in following)
    if alone and all(_are(at, count) for _, at in run.given[module]):
        return replace(check, reason="a model inside this one, which is given no positions and counts its own tokens")
    return None


def _are(rows: Tensor, positions: Tensor) -> bool:
    return rows.shape[-1] == len(positions) and bool((rows == positions).all())


def _judged(check: Check, calls: list[tuple[int, Tensor]], meant: list[Tensor]) -> Check:
    for call, rows in calls:
        wrong = (rows != meant[call]).any(0)
        if wrong.any():
            token = int(wrong.nonzero()[0])
            row = int((rows[:, token] != meant[call][token]).nonzero()[0])
            cause, says = _named(rows[row], meant[call], call)
            size = (rows - meant[call]).abs().max().item()
            check = replace(
                check,
                verdict="wrong",
                difference=check.apart(size=size, position=float(meant[call][token])),
            )
            return replace(check, cause=cause, reason=says, way_out=way_out("positions"))
    return replace(check, verdict="right", difference=check.apart(size=0.0))


def _named(got: Tensor, meant: Tensor, call: int) -> tuple[str, str]:
    """Cause and sentence for the positions of one call that are not those that are meant."""
    by = got - meant
    if call > 0 and int(got[0]) == 0:
        return "positions restart with the cache", f"the token at {int(meant[0])} is given position 0"
    if call == 0 and 0 == int(got[0]) < int(meant[0]):
        return "positions", "the tokens are counted from 0, whatever positions the model is given"
    if bool((by == by[0]).all()):
        return "positions", f"they are too {'high' if by[0] > 0 else 'low'} by {abs(int(by[0]))}"
    last = int(got.max())
    if torch.equal(got, meant.clamp(max=last)):
        return "positions", f"positions beyond {last} are clamped to it"
    first = int((by != 0).nonzero()[0])
    return "positions", f"the token at {int(meant[first])} is given position {int(got[first])}"
