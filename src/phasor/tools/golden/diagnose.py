"""The likely cause: the known mistake that gives what the other implementation gave."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from .case import Mistake, RotationCase, imitate, right
from .comparison import Comparison
from .layer_kinds import Kind
from .mistakes import fits, mistakes
from .rounding import CLOSE, FEW
from .vectors import Vectors

ENOUGH = 0.97  # of all elements must be explained: roundings of rounded values may fall either way
_FIRST_OF_TWO = (
    "layout",
    "permuted",
    "direction",
    "positions",
    "attention_factor",
    "scaling",
    "rotary_dim",
    "trailing",
)


def diagnose(vectors: Vectors, kind: Kind, wrong: list[Comparison]) -> tuple[tuple[Mistake, ...], list[Comparison]]:
    """The mistakes, none to two, and the tensors that they explain: all of ``wrong``, those that are off by more than
    the rounding of what was given, or the first alone."""
    if kind.spec is None:
        return (), []
    case = right(vectors, kind)
    temperature = vectors.tensors.get(f"{kind.name}.temperature")
    inputs = {t: vectors.tensors[f"{kind.name}.{t}_in"] for t in vectors.data["targets"]}
    known = list(mistakes(case, vectors.data["softmax_factor"], temperature))
    wrong = [c for c in wrong if imitate(case, c.short, inputs) is not None]
    unchanged = {c.short: imitate(case, c.short, inputs) for c in wrong}
    more = [c for c in wrong if _explained(c, unchanged[c.short]) < ENOUGH]
    tries = {tuple(c.short for c in some): some for some in (wrong, more, wrong[:1]) if some}
    for tensors in tries.values():
        if best := _best(_single(case, known, tensors, inputs), tensors, inputs, unchanged):
            return best, tensors
        several = any(float(c.wrong.double().mean()) > FEW for c in tensors)  # no two mistakes show in few values
        if several and (best := _best(_double(case, known, tensors, inputs), tensors, inputs, unchanged)):
            return best, tensors
    return (), []


_Candidate = tuple[tuple[Mistake, ...], RotationCase]


def _single(
    case: RotationCase, known: list[Mistake], wrong: list[Comparison], inputs: dict[str, Tensor]
) -> Iterator[_Candidate]:
    for mistake in itertools.chain(known, fits(case, wrong, inputs)):
        changed = mistake.of(case)
        if changed is not None:
            yield (mistake,), changed


def _double(
    case: RotationCase, known: list[Mistake], wrong: list[Comparison], inputs: dict[str, Tensor]
) -> Iterator[_Candidate]:
    beside = [mistake for mistake in known if not mistake.alone]
    for first in (mistake for mistake in beside if mistake.cause in _FIRST_OF_TWO):
        changed = first.of(case)
        # config keys that were not read take base and scaling with them; another scaling is a mistake by itself
        if changed is None or (first.cause == "scaling" and changed.spec.scaling is not None):
            continue
        for second in itertools.chain(beside, fits(changed, wrong, inputs)):
            if second.alone or second.cause in (first.cause, "factor"):
                continue
            twice = second.of(changed)
            if twice is not None:
                yield (first, second), twice


def _best(
    candidates: Iterator[_Candidate],
    wrong: list[Comparison],
    inputs: dict[str, Tensor],
    unchanged: dict[str, Tensor | None],
) -> tuple[Mistake, ...]:
    """The one that explains most; the first of equals. One that changes nothing in a tensor explains nothing there."""
    best: tuple[Mistake, ...] = ()
    highest = 0.0
    for chosen, case in candidates:
        share = 1.0
        for c in wrong:
            candidate, plain = imitate(case, c.short, inputs), unchanged[c.short]
            same = candidate is not None and plain is not None and torch.equal(candidate, plain)
            share = min(share, 0.0 if same else _explained(c, candidate))
            if share <= max(highest, ENOUGH - 1e-9):
                break
        if share > highest and share >= ENOUGH:
            best, highest = chosen, share
            if share > 1 - 1e-4:
                break
    return best


def _explained(c: Comparison, candidate: Tensor | None) -> float:
    """The share of the telling elements that are the candidate's; 0 unless it explains the wrong ones too."""
    if candidate is None or candidate.shape != c.got.shape:
        return 0.0
    candidate = candidate.to(c.other_dtype).double()
    matched, telling = c.matches(candidate), c.telling
    bad = c.wrong & telling
    nearer = (c.got - candidate).abs() < (c.got - c.expected).abs() / 2
    better = matched & (nearer | ~(c.got.isfinite()))
    if not bad.any() or float(better[bad].double().mean()) < ENOUGH:
        return 0.0
    if float(c.wrong.double().mean()) <= FEW:  # by chance a mistake comes near one value: it must not move the others
        moved = (candidate.to(c.dtype).double() - c.got).abs() > (c.got - c.expected).abs() + CLOSE
        if float(moved[telling].double().mean()) > 1 - ENOUGH:
            return 0.0
    return float(matched[telling].double().mean())
