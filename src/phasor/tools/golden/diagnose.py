"""The likely cause: the known mistake that gives what the other implementation gave."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .case import Mistake, RotationCase, imitate, right, spread
from .comparison import CLOSE, FEW, TELLING, Comparison
from .layer_kinds import Kind
from .mistakes import fits, mistakes
from .vectors import Vectors

ENOUGH = 0.97  # of all elements must be explained: roundings of rounded values may fall either way
CLEARLY = 0.8  # a later reading must leave less than this of what the first leaves, to be taken instead
READ_OFF = 0.5  # or this, if its number was read off the values: it follows their roundings
EQUALLY = 1.02  # and at most this, to be told beside it
NOTHING = 5e-3  # of the tolerance: nothing can fit better
FAST = torch.tensor(500.0)  # radians that the first tokens do not reach
ROWS = 0.4  # of the rows that are off, which one mistake explains whole, for it to be the larger of several
_FIRST_OF_TWO = (
    "layout", "permuted", "direction", "in_place", "lost_minus", "cos_sin", "degrees", "positions", "attention_factor",
    "scaling", "rotary_dim", "trailing",
)  # fmt: skip
_OF_ANGLES = ("positions", "scaling", "attention_factor")  # looked for first beside what is not a rounding


@dataclass(frozen=True)
class Cause:
    """One word for programs, one sentence for people, and the tensors that it explains."""

    word: str
    text: str
    tensors: list[Comparison]


@dataclass(frozen=True)
class Explanation:
    """One mistake or two, the case that they make, and how much of the tolerance its values leave."""

    mistakes: tuple[Mistake, ...]
    case: RotationCase
    rest: float = 1.0

    @property
    def word(self) -> str:
        return "+".join(mistake.cause for mistake in self.mistakes)

    @property
    def text(self) -> str:
        return "; and ".join(mistake.text for mistake in self.mistakes)


class MistakeJudge:
    """The tensors of one kind that are off, against every reading."""

    def __init__(self, vectors: Vectors, kind: Kind, off: list[Comparison]) -> None:
        self.case = right(vectors, kind)
        targets = ("k",) if kind.moved else vectors.data["targets"]
        self.inputs = {t: vectors.tensors[f"{kind.name}.{t}_in"] for t in targets}
        temperature = vectors.tensors.get(f"{kind.name}.temperature")
        self.known = list(mistakes(self.case, vectors.data["softmax_factor"], temperature))
        self.plain = {c.short: imitate(self.case, c.short, self.inputs) for c in off}
        self.first = (
            self.case.positions.abs().max(0).values.double().argsort()[: self.case.positions.shape[-1] // 3 + 1]
        )
        self.off = [c for c in off if self.plain[c.short] is not None]

    def cause(self) -> Cause | None:
        """Of all tensors, of those that are off by more than the rounding of what was given, or of the first alone."""
        more = [c for c in self.off if self._explained(c, self.case)[0] < ENOUGH]
        tries = list({tuple(c.short for c in some): some for some in (self.off, more, self.off[:1]) if some}.values())
        for tensors in tries:
            if best := self._best(self._single(tensors), tensors):
                return self._told(best, tensors)
            several = any(float(c.wrong.double().mean()) > FEW for c in tensors)  # no two mistakes show in few values
            if several and (best := self._best(self._double(tensors), tensors)):
                return Cause(best.word, best.text, tensors)
        return next(filter(None, map(self._larger, tries)), None)

    def _single(self, tensors: list[Comparison]) -> Iterator[Explanation]:
        for mistake in itertools.chain(self.known, fits(self.case, tensors, self.inputs)):
            if (changed := mistake.of(self.case)) is not None:
                yield Explanation((mistake,), changed)

    def _double(self, tensors: list[Comparison]) -> Iterator[Explanation]:
        beside = [mistake for mistake in self.known if not mistake.alone]
        for first in (mistake for mistake in beside if mistake.cause in _FIRST_OF_TWO):
            changed = first.of(self.case)
            # config keys that were not read take base and scaling with them; another scaling is a mistake by itself
            if changed is None or (first.cause == "scaling" and changed.spec.scaling is not None):
                continue
            for second in itertools.chain(beside, fits(changed, tensors, self.inputs)):
                if second.alone or second.cause in (first.cause, "factor"):
                    continue
                if second.cause == "low_precision" and first.cause in _OF_ANGLES:
                    continue
                if (twice := second.of(changed)) is not None:
                    yield Explanation((first, second), twice)

    def _best(self, readings: Iterable[Explanation], tensors: list[Comparison]) -> Explanation | None:
        """The first that explains all tensors, unless a later one clearly leaves less."""
        best: Explanation | None = None
        for reading in readings:
            rest = self._rest(reading, tensors)
            limit = CLEARLY if all(mistake in self.known for mistake in reading.mistakes) else READ_OFF
            if rest is not None and (best is None or rest < limit * best.rest):
                best = Explanation(reading.mistakes, reading.case, rest)
                if rest < NOTHING:
                    break
        return best

    def _told(self, best: Explanation, tensors: list[Comparison]) -> Cause:
        """With the other known mistake that fits as well, if there is one: then it is not shown which it is."""
        for mistake in self.known if best.mistakes[0] in self.known else ():
            changed = mistake.of(self.case) if mistake.cause != best.word else None
            rest = None if changed is None else self._rest(Explanation((mistake,), changed), tensors)
            if rest is not None and rest <= EQUALLY * best.rest + NOTHING:
                text = f"not shown which of two it is, for both give these values: {best.text}; or {mistake.text}"
                return Cause(f"{best.word}|{mistake.cause}", text, tensors)
        return Cause(best.word, best.text, tensors)

    def _rest(self, reading: Explanation, tensors: list[Comparison]) -> float | None:
        """What is left of the tolerance in the worst tensor, None unless it explains each of them."""
        worst = 0.0
        for c in tensors:
            share, rest = self._explained(c, reading.case)
            if share < ENOUGH:
                return None
            worst = max(worst, rest)
        return worst

    def _explained(self, c: Comparison, case: RotationCase) -> tuple[float, float]:
        """The share of the telling elements that are those of the case, 0 unless it explains the wrong ones too, and
        the share of the tolerance by which they are off. A case that changes nothing explains nothing."""
        candidate, plain = imitate(case, c.short, self.inputs), self.plain[c.short]
        assert candidate is not None and plain is not None
        if candidate.shape != c.got.shape or (case is not self.case and torch.equal(candidate, plain)):
            return 0.0, 1.0
        candidate = candidate.to(c.other_dtype).double()
        if not self._near(c, candidate):
            return 0.0, 1.0
        angles = _angles(c, case)
        telling = (angles < TELLING).expand(c.got.shape)
        if int(telling.sum()) < int(c.telling.sum()) / 2:  # so fast that it would explain whatever came
            return 0.0, 1.0
        off = (c.got - candidate).abs() / c.allowed(candidate, angles)
        off = torch.where(c.got.isnan() & candidate.isnan(), 0.0, off).nan_to_num(nan=2.0)
        matched = off <= 1
        bad = c.wrong & telling
        loose = bad & ((c.got - c.expected).abs() > c.allowed(c.expected, c.angles)).logical_or(~c.got.isfinite())
        bad = loose if loose.any() else bad
        nearer = (c.got - candidate).abs() < (c.got - c.expected).abs() / 2
        better = matched & (nearer | ~c.got.isfinite())
        if not bad.any() or float(better[bad].double().mean()) < ENOUGH:
            return 0.0, 1.0
        if (
            float(c.wrong.double().mean()) <= FEW
        ):  # by chance a mistake comes near one value: it must not move the others
            moved = (candidate.to(c.dtype).double() - c.got).abs() > (c.got - c.expected).abs() + CLOSE
            if float(moved[telling].double().mean()) > 1 - ENOUGH:
                return 0.0, 1.0
        return float(matched[telling].double().mean()), float(off[telling].clamp(max=1).mean())

    def _near(self, c: Comparison, candidate: Tensor) -> bool:
        """Whether most values of the first tokens are those of the candidate, by any angles: most are not, and this
        is quickly seen."""
        if c.angles.ndim == 0:
            return True
        here = self.first
        matched = (c.got[..., here, :] - candidate[..., here, :]).abs() <= c.allowed(candidate[..., here, :], FAST)
        return bool(matched.double().mean() >= 1 / 2) or not bool(c.got[..., here, :].isfinite().all())

    def _larger(self, tensors: list[Comparison]) -> Cause | None:
        """The mistake that gives whole tokens of every tensor, where several were made."""
        best: tuple[float, Explanation] | None = None
        for reading in self._single(tensors):
            share = min(self._rows(c, reading.case) for c in tensors)
            if share >= ROWS and (best is None or share > best[0]):
                best = share, reading
        if best is None:
            return None
        share, reading = best
        text = f"more than one mistake; the larger: {reading.text} (it gives {share:.0%} of the tokens that are off)"
        return Cause(f"{reading.word}+unknown", text, tensors)

    def _rows(self, c: Comparison, case: RotationCase) -> float:
        """The share of the tokens that are off, in ``[1, heads, S, D]`` or ``[S, P]``, which the case gives whole."""
        candidate = imitate(case, c.short, self.inputs)
        if candidate is None or candidate.shape != c.got.shape or c.got.ndim < 2:
            return 0.0
        angles = _angles(c, case)
        known = (angles < TELLING).expand(c.got.shape)
        apart = (c.got - candidate).abs() > c.allowed(candidate, angles)
        off = ((c.got - c.expected).abs() > c.allowed(c.expected, c.angles)).any(-1)
        explained = off & known.any(-1) & ~(apart & known | ~c.got.isfinite()).any(-1)
        return float(explained.sum() / off.sum()) if int(explained.sum()) > 2 else 0.0


def _angles(c: Comparison, case: RotationCase) -> Tensor:
    return spread(case, c.short.rpartition(".")[2]) if c.angles.ndim else c.angles


def diagnose(vectors: Vectors, kind: Kind, wrong: list[Comparison]) -> Cause | None:
    """The cause of what is off in these tensors; None where no known mistake gives it."""
    if kind.spec is None:
        return None
    judge = MistakeJudge(vectors, kind, wrong)
    return judge.cause() if judge.off else None
