"""The likely cause: of all known mistakes the one that comes nearest to what the other implementation gave."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .case import Inputs, Mistake, RotationCase, imitate, inputs_of, right, spread
from .comparison import TELLING, Comparison
from .instead import cause_instead
from .layer_kinds import Kind
from .mistakes import fits, mistakes, of_kinds
from .mistakes.gradients import Gradient, of_gradient, of_rounding
from .vectors import Vectors

ENOUGH = 0.97  # of all elements must be explained: roundings of rounded values may fall either way
ALIKE = 1.25  # times the least that any mistake leaves of the tolerance: not less, so the simpler one is told
EQUALLY = 1.02  # times what the told one leaves, to be told beside it
NOTHING = 5e-3  # of the tolerance: nothing can fit better


@dataclass(frozen=True)
class Cause:
    """One word for programs, one sentence for people, and the tensors that it explains."""

    word: str
    text: str
    tensors: list[Comparison]


def diagnose(vectors: Vectors, kind: Kind, wrong: list[Comparison]) -> Cause | None:
    """The cause of what is off in all these tensors, or in the first alone; None where no known mistake gives it."""
    if kind.spec is None:
        found = None if kind.temperature is not None else cause_instead(wrong)
        return None if found is None else Cause(*found)
    case, inputs = right(vectors, kind), inputs_of(vectors, kind)
    known = list(mistakes(case, vectors.data["softmax_factor"], vectors.tensors.get(f"{kind.name}.temperature")))
    known += of_kinds(kind, vectors.kinds.values())
    off = [c for c in wrong if imitate(case, c.short, inputs) is not None]
    for tensors in (off, off[:1])[: len(off)]:
        scored: list[tuple[float, Mistake]] = []
        for mistake in (*known, *fits(case, tensors, inputs)):
            changed = mistake.of(case)
            if changed is not None and (left := _left_in_all(tensors, case, changed, inputs)) is not None:
                scored.append((left, mistake))
        if scored:
            return Cause(*_told(scored, known), tensors)
    return None


def _told(scored: list[tuple[float, Mistake]], known: list[Mistake]) -> tuple[str, str]:
    """The simplest mistake, which is the first, of those that leave about the least; with another known one that gives
    the same values, if there is one: then it is not shown which it is."""
    limit = ALIKE * min(left for left, _ in scored) + NOTHING
    least, best = next(one for one in scored if one[0] <= limit)
    for left, other in scored if best in known else ():
        if other in known and other.cause != best.cause and left <= EQUALLY * least + NOTHING:
            both = f"not shown which of two it is, for both give these values: {best.text}; or {other.text}"
            return f"{best.cause}|{other.cause}", both
    return best.cause, best.text


def _left_in_all(tensors: list[Comparison], case: RotationCase, changed: RotationCase, inputs: Inputs) -> float | None:
    """What a mistake leaves of the tolerance in the worst tensor; None unless it explains each of them."""
    worst = 0.0
    for c in tensors:
        if (left := _left(c, case, changed, inputs)) is None:
            return None
        worst = max(worst, left)
    return worst


def _left(c: Comparison, case: RotationCase, changed: RotationCase, inputs: Inputs) -> float | None:
    """By how much of the tolerance the telling elements are off on average; None unless nearly all of them are those of
    the changed case, and nearly all wrong ones nearer to it than to the right one. A case that changes nothing explains
    nothing."""
    candidate = imitate(changed, c.short, inputs)
    assert candidate is not None
    candidate = candidate.to(c.other_dtype).double()
    if candidate.shape != c.got.shape:
        return None
    angles = spread(changed, c.short, inputs) if c.rotates else c.angles
    telling = (angles < TELLING).expand(c.got.shape)
    if int(telling.sum()) < int(c.telling.sum()) / 2:  # so fast that it would explain whatever came
        return None
    apart = (c.got - candidate).abs()
    off = torch.where(c.got.isnan() & candidate.isnan(), 0.0, apart / c.allowed(candidate, angles)).nan_to_num(nan=2.0)
    closer = (apart < (c.got - c.expected).abs() / 2) | ~c.got.isfinite()
    bad = c.worse & telling if (c.worse & telling).any() else c.wrong & telling
    if not bad.any() or min(_share((off <= 1)[telling]), _share(((off <= 1) & closer)[bad])) < ENOUGH:
        return None
    return float(off[telling].clamp(max=1).mean())


def _share(truths: Tensor) -> float:
    return float(truths.double().mean())


def diagnose_backward(vectors: Vectors, kind: Kind, wrong: list[Comparison]) -> Cause | None:
    """As `diagnose`, of gradients alone: first what is wrong with a backward, then what a wrong rotation would give."""
    if kind.spec is None:
        return None
    case, inputs = right(vectors, kind), inputs_of(vectors, kind)
    turned = case.replace(spec=case.spec.replace(reverse=not case.spec.reverse))
    gradients = []
    for c in wrong:
        forwards, allowed, at = imitate(turned, c.short, inputs), c.allowed(c.expected, c.angles), c.telling
        assert forwards is not None
        gradients.append(Gradient(c.got[at], c.expected[at], forwards[at], allowed.expand(at.shape)[at]))
    found = [of_gradient(one) for one in gradients]
    if found[0] is None:
        if (known := diagnose(vectors, kind, wrong)) is not None:
            return known
        found = [of_rounding(one) for one in gradients]
    if (first := found[0]) is None:
        return None
    return Cause(*first, [c for c, one in zip(wrong, found, strict=True) if one is not None and one[0] == first[0]])
