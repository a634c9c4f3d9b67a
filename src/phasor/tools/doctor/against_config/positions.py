"""The positions that rotary modules are given in real calls: counted by the model, given to it, and after a cache."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ....support.findings import Difference
from ..report import Check
from ..running import Running
from ..subject import NotChecked
from .causes import way_out

CACHED = 8  # tokens of the first call
ELSEWHERE = 300  # where no declared length says what is far
Given = dict[nn.Module, list[tuple[int, Tensor]]]  # module -> number of the model's call, positions [rows, S]


def checks_of_positions(
    subject: Running, rotary: dict[str, nn.Module], tokens: Tensor, length: int | None
) -> Iterator[Check]:
    """Three checks of each rotary module that is given positions of text; ``length``: what the config declares."""
    row = tokens[:1]
    count = torch.arange(row.shape[1], device=row.device)
    far = count + max(0, (length or ELSEWHERE) - row.shape[1] // 2)
    first = min(CACHED, row.shape[1] - 2)
    pieces = [n for n in (first, 1, 1, row.shape[1] - first - 2) if n > 0]
    runs: tuple[tuple[str, Callable[[], Any], list[Tensor]], ...] = (
        ("positions counted by the model", lambda: subject.run(row, None), [count]),
        ("positions given to the model", lambda: subject.run(row, far[None]), [far]),
        ("positions after a cache", lambda: subject.in_pieces(row, count[None], pieces), list(count.split(pieces))),
    )
    starts: dict[nn.Module, int] = {}
    for what, run, meant in runs:
        calls, why_not = _given(subject.model, rotary, run)
        for path, module in rotary.items():
            check = Check(
                where=path, what=what, against="spec", verdict="not shown", difference=Difference(of="positions")
            )
            if why_not:
                yield replace(check, reason=why_not)
            elif module in calls and all(at.shape[-1] == len(meant[n]) for n, at in calls[module]):
                if meant[0] is far:
                    yield _apart(check, module, calls, count, far) or _judged(check, calls[module], meant)
                else:
                    start = starts.setdefault(module, _start(calls[module][0][1], meant[0]))
                    judgement = _judged(check, calls[module], [at + start for at in meant])
                    counted = start and judgement.verdict == "right"
                    yield replace(judgement, reason=f"counted from {start}") if counted else judgement


def _given(model: nn.Module, rotary: dict[str, nn.Module], run: Callable[[], Any]) -> tuple[Given, str]:
    seen: Given = {}
    calls = [-1]

    def counts(module: nn.Module, args: tuple[Any, ...]) -> None:
        calls[0] += 1

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        at = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if isinstance(at, Tensor) and not at.is_floating_point():
            seen.setdefault(module, []).append((calls[0], at.reshape(-1, at.shape[-1])))

    with contextlib.ExitStack() as undo:
        undo.callback(model.register_forward_pre_hook(counts).remove)
        for module in rotary.values():
            undo.callback(module.register_forward_pre_hook(note, with_kwargs=True).remove)
        try:
            run()
        except (NotChecked, RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            return {}, str(error) if isinstance(error, NotChecked) else f"the model cannot be run so: {error!s:.120}"
    return seen, ""


def _start(rows: Tensor, count: Tensor) -> int:
    """From where a model counts: PaliGemma from 1, which changes no distance."""
    by = rows - count
    return int(by[0, 0]) if bool((by == by[0, 0]).all()) else 0


def _apart(check: Check, module: nn.Module, called: Given, count: Tensor, far: Tensor) -> Check | None:
    """A model inside the model, with a config of its own, that counts for itself while others use what is given."""
    config = getattr(module, "config", None)
    following = [m for m, calls in called.items() if all(_are(at, far) for _, at in calls)]
    alone = following and config is not None and all(getattr(m, "config", None) is not config for m in following)
    if alone and all(_are(at, count) for _, at in called[module]):
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
