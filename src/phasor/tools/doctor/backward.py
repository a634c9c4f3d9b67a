"""The gradients of q and k: a rotation's backward is a rotation by minus the position, times its factor.

The stretch that the eye has seen is replayed, and its gradient is the right one, whatever backward the model's own code
has. The model's is asked of autograd, in one call of the whole model, between the same two values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...eye.call import ERRORS, left_alone
from ...eye.linear import replay
from ...eye.matrices import axes_of
from ...eye.operator import Operator
from ...eye.tape import Tape
from ...support.errors import first_line
from ...support.findings import Difference, span
from ..golden.mistakes.gradients import DETACHED, Gradient, of_gradient, of_rounding
from .measurement import Trial
from .observation import Observation
from .report import Check
from .running import NotChecked, Running
from .ways import OWN_ROWS, TRAINING, Called, Piece, train

WHAT = "gradient of q and k"
WITH, GRADIENTS = "in training = in evaluation", "with gradients = without"
WITHIN, WITHIN_HALF = 1e-3, 3e-2  # of the largest value
SAME_LENGTH = 1e-2
WAY = "give the rotation a backward that turns by minus the position, times the same factor; autograd's own does"


class _Live(TorchFunctionMode):
    """Every tensor of real numbers that code in Python has in hand, by its number of elements, the last used last."""

    def __init__(self) -> None:
        super().__init__()
        self.by_size: dict[int, dict[int, Tensor]] = {}

    def _note(self, values: Any) -> None:
        for value in values if isinstance(values, list | tuple) else (values,):
            if type(value) is Tensor and value.is_floating_point():
                there = self.by_size.setdefault(value.numel(), {})
                there.pop(id(value), None)
                there[id(value)] = value

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._note((*args, *kwargs.values()))
        out = func(*args, **kwargs)
        self._note(out)
        return out

    def like(self, value: Tensor) -> list[Tensor]:
        """Those that hold these numbers, in whatever shape."""
        flat = value.detach().cpu().flatten()
        there = self.by_size.get(len(flat), {})
        return [t for t in there.values() if t.dtype == value.dtype and torch.equal(t.detach().cpu().flatten(), flat)]


@dataclass
class _Found:
    """What is wrong with the gradients of one side; ``unseen``: why nothing can be said."""

    cause: str = ""
    says: str = ""
    unseen: str = ""


def check_backward(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    plain = observed.plain
    blank = Check(what=WHAT, against="itself", verdict="not shown", difference=Difference(of="gradients"))
    if plain.why_not or plain.tape is None:
        yield replace(blank, reason=plain.why_not)
        return
    try:
        live, checks = _in_training(observed, plain.way.pieces[0])
        if not any(TRAINING in row.cause for row in before):
            yield from checks
    except NotChecked as reason:
        yield replace(blank, reason=str(reason))
        return
    except ERRORS as error:
        yield replace(blank, reason=f"it cannot be differentiated: {type(error).__name__}: {first_line(error):.120}")
        return
    one_row = list(_of_call(plain, live))
    rows = [] if any(one.cause for _, one in one_row) else _of_rows(observed)
    for cause, says in dict.fromkeys((one.cause, one.says) for _, one in (*one_row, *rows) if one.cause):
        where = span(list(dict.fromkeys(where for where, one in (*one_row, *rows) if one.says == says)))
        several = "" if any(one.says == says for _, one in one_row) else ", only in some rows of a batch"
        yield replace(blank, where=where, verdict="wrong", cause=cause + several, reason=says, way_out=WAY)
    if not any(one.cause for _, one in (*one_row, *rows)):
        unseen = [one.unseen for _, one in (*one_row, *rows) if one.unseen]
        why = unseen[0] if unseen else "nothing turns in one plain call"
        yield replace(blank, verdict="right") if one_row and not unseen else replace(blank, reason=why)


def _of_call(called: Called, live: _Live) -> Iterator[tuple[str, _Found]]:
    """What is found of each side that turns in a call, and in which attention."""
    for site in called.sites:
        for side in (site.q, site.k):
            if side.operator is None or not side.turns or called.tape is None:
                continue
            transposed = site.attention.keys_transposed and side.operator.target == site.attention.k
            yield site.where, _of_side(called.tape, side.operator, live, -2 if transposed else -1)


def _of_rows(observed: Observation) -> list[tuple[str, _Found]]:
    """In a batch whose rows have positions of their own: what a backward keeps may be those of one row."""
    called = observed.rows
    if called is None or called.tape is None or called.why_not:
        return []
    try:
        live, _ = _recorded(observed.subject, called.way.pieces[0], True)
        return list(_of_call(called, live))
    except ERRORS as error:
        return [("", _Found(unseen=f"{OWN_ROWS}: it cannot be differentiated: {first_line(error):.120}"))]


def _in_training(observed: Observation, piece: Piece) -> tuple[_Live, list[Check]]:
    """The same call as in training gives the same logits; where it does not, or cannot, with gradients alone."""
    trial = Trial(observed.subject, piece.tokens)
    way = "look for code that asks self.training, torch.is_grad_enabled(), or whether a tensor requires a gradient"

    def judged(what: str, logits: Tensor) -> Check:
        says = "a call that gradients are built of gives other logits than one without"
        return trial.judged(what, lambda: logits, partial(observed.subject.logits, piece.tokens, None), says, way)

    try:
        live, logits = _recorded(observed.subject, piece, True)
        if (check := judged(WITH, logits)).verdict != "wrong":
            return live, [check]
        why = "its logits are others in training: by chance, by a rule of its own, or by a fault that no operator shows"
    except ERRORS as error:
        why = f"it cannot be run as in training: {first_line(error)}"
    live, logits = _recorded(observed.subject, piece, False)
    check = judged(GRADIENTS, logits)
    if check.verdict == "wrong":
        return live, [replace(check, cause="only in grad mode")]
    return live, [Check(what=WITH, against="itself", verdict="not shown", reason=why), check]


def _recorded(subject: Running, piece: Piece, training: bool) -> tuple[_Live, Tensor]:
    """One call with gradients, from the embeddings on, and its logits."""
    live = _Live()

    def start(module: Any, args: Any, out: Any) -> Any:
        return out.detach().requires_grad_() if isinstance(out, Tensor) and out.is_floating_point() else out

    hook = subject.embedding().register_forward_hook(start)
    try:
        with left_alone(subject.model), torch.enable_grad(), live:
            torch.manual_seed(0)
            if training:
                train(subject.model)
            logits = subject.logits(piece.tokens, piece.positions if piece.given else None)
    finally:
        hook.remove()
    return live, logits.detach()


def _of_side(tape: Tape, operator: Operator, live: _Live, axis: int) -> _Found:
    """``axis``: that of the channels. Those that pass are left out: latent keys reach them on other ways, too."""
    sources = [[t for t in live.like(tape.values[i]) if t.requires_grad] for i in operator.sources]
    if not all(sources):
        return _Found(unseen="what it turns is not seen in a call with gradients")
    if not (seen := live.like(tape.values[operator.target])):
        return _Found(unseen="its result is not seen in a call with gradients")
    target = seen[-1]  # what the product takes
    if target.grad_fn is None:
        return _Found(*DETACHED)
    made = torch.Generator().manual_seed(0)
    seed = torch.randn(tape.values[operator.target].shape, dtype=torch.float64, generator=made)
    seed.movedim(axis, -1)[..., [c for c in range(operator.channels) if not any(c in p for p in operator.pairs)]] = 0
    candidates = [t for there in sources for t in there]
    given = seed.reshape(target.shape).to(target)
    found = torch.autograd.grad(target, candidates, given, allow_unused=True, retain_graph=True)
    by_source, rest = [], list(found)
    for there in sources:
        mine, rest = rest[: len(there)], rest[len(there) :]
        by_source.append(next((g for g in mine if g is not None), None))
    must = _must(tape, operator, seed)
    got = [
        torch.zeros_like(m) if g is None else g.detach().cpu().double().reshape(m.shape)
        for m, g in zip(must, by_source, strict=True)
    ]
    twice = _twice(operator, seed, axis)
    half = tape.values[operator.target].dtype in (torch.bfloat16, torch.float16)
    return _judged(_flat(got), _flat(must), None if twice is None else _flat(_must(tape, operator, twice)), half)


def _must(tape: Tape, operator: Operator, seed: Tensor) -> list[Tensor]:
    xs = [tape.values[i].detach().double().clone().requires_grad_() for i in operator.sources]
    with torch.enable_grad():
        y = replay(tape, operator.operations, dict(zip(operator.sources, xs, strict=True)), operator.target)
        found = torch.autograd.grad(y, xs, seed.reshape(y.shape), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True)]


def _twice(operator: Operator, seed: Tensor, axis: int) -> Tensor | None:
    """The seed turned forwards by twice the angles, so that its gradient is what turns forwards by them; None where
    heads and tokens lie otherwise than the operator's."""
    tokens = operator.cos.shape[-1]
    if tokens not in seed.shape:
        return None
    axes = axes_of(seed, tokens, axis == -2)
    at, turn = axes.arranged(seed).clone(), torch.complex(operator.cos, operator.sin).transpose(1, 2)
    if at.shape[:2] != turn.shape[:2]:
        return None
    (first, second), (x, y) = ([[pair[i] for pair in p] for i in (0, 1)] for p in (operator.pairs, _places(operator)))
    for _ in range(2):  # as the forward does it, also where it writes a pair elsewhere than it reads it
        both = torch.complex(at[..., x], at[..., y]) * turn / turn.abs()
        at[..., first], at[..., second] = both.real, both.imag
    turned = torch.empty_like(seed).flatten()
    turned[axes.arranged(torch.arange(seed.numel()).reshape(seed.shape)).flatten()] = at.flatten()
    return turned.reshape(seed.shape)


def _places(operator: Operator) -> list[list[int]]:
    """From which of the channels that turn each pair comes."""
    written, read = (sorted(c for pair in p for c in pair) for p in (operator.pairs, operator.inputs))
    place = dict(zip(read, written, strict=True))
    return [[place[c] for c in pair] for pair in operator.inputs]


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def _judged(got: Tensor, must: Tensor, forwards: Tensor | None, half: bool) -> _Found:
    size = float(must.abs().max())
    apart = (got - must).abs()
    if float(apart.max()) <= (WITHIN_HALF if half else WITHIN) * size:
        return _Found()
    gradient = Gradient(got, must, forwards, WITHIN_HALF * size)
    if (known := of_gradient(gradient) or of_rounding(gradient)) is not None:
        return _Found(*known)
    if abs(float(got.norm() / must.norm()) - 1) < SAME_LENGTH:
        return _Found("angles of the gradient", "the gradient is turned, but not by minus the position")
    return _Found("gradient", "the gradient is not that of the rotation")
