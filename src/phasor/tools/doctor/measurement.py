"""A subject with tokens to try it on, and how far two runs of it may differ by rounding alone."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...rotary.spec import RotarySpec
from ...support.errors import first_line
from .report import BY_DESIGN, Check
from .running import Misuse, NotChecked, Subject

ROUNDINGS = 256  # steps of float32, of the largest logit: what sums in other orders cost through a deep model
OF_HALF = 16  # steps of half precision, of which float32 sums leave fewer
NOISE = 8  # times what the order of a batch, or one step in the embeddings, changes: a router may choose otherwise
JITTERS = 2
OF_ANGLES = 2.0**-22  # a float32 angle is off by so much per radian, at most, twice for two of them


@dataclass(frozen=True)
class Trial:
    """``tokens [B, S]``, at least two rows of four tokens, at positions from 0 on.

    ``by_design`` says why this encoding may be inconsistent with itself from ``threshold`` positions on; empty where it
    must not be.
    """

    subject: Subject
    tokens: Tensor
    by_design: str = ""
    threshold: int = 0

    @classmethod
    def of(cls, subject: Subject, tokens: Tensor, specs: Sequence[RotarySpec]) -> "Trial":
        """From position 0 on, of a model with these specs, of which some may change by design with the length."""
        lengths = {
            s.scaling.trained_length: f"{s.scaling.name}: its frequencies depend on the length of the sequence"
            for s in specs
            if s.length_dependent and s.scaling is not None and s.scaling.trained_length
        }
        threshold = min(lengths, default=0)
        return cls(subject, tokens, by_design=lengths.get(threshold, ""), threshold=threshold)

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    @property
    def last(self) -> int:
        return self.length - 1

    @cached_property
    def positions(self) -> Tensor:
        return torch.arange(self.length, device=self.tokens.device).expand_as(self.tokens)

    @cached_property
    def _logits(self) -> Tensor:
        return self.subject.logits(self.tokens, self.positions)

    def logits(self) -> Tensor:
        """Of all rows in one call; run once."""
        return self._logits

    @cached_property
    def finite(self) -> Tensor:
        """``[B, S]``: whether every logit of a token is a number, but for words that no token may be followed by."""
        logits = self.logits().flatten(2)
        never = (logits == -torch.inf).flatten(0, 1).all(0)
        return (logits.isfinite() | never).all(-1)

    @cached_property
    def certain(self) -> float:
        """What two runs of the same mathematics may always differ by: roundings of the format."""
        # models in float64 form norms, angles and softmax in float32
        eps = max(torch.finfo(self.logits().dtype).eps, torch.finfo(torch.float32).eps)
        half = eps > torch.finfo(torch.float32).eps
        return (OF_HALF if half else ROUNDINGS) * eps * self.scale

    @cached_property
    def allowed(self) -> float:
        """How far they may differ in this model: roundings, and what changes by itself."""
        others = [self.subject.logits(self.tokens.flip(0), self.positions).flip(0)]
        others += [self.subject.jittered(self.tokens, self.positions, seed) for seed in range(JITTERS)]
        return self.certain + NOISE * self._farthest(others)

    def _farthest(self, others: Iterable[Tensor]) -> float:
        return max(_apart(self.logits(), other).max().item() for other in others)

    @cached_property
    def effect(self) -> float:
        """How much positions move the logits at all: all distances halved, which no table is too short for.

        Infinite where none can be given, and so nothing says it.
        """
        if not self.subject.counts:
            return math.inf
        return _apart(self.with_gaps(self.tokens, self.positions // 2), self.logits()).max().item()

    def with_gaps(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits at positions that do not go up by one."""
        try:  # without a mask, transformers takes a jump of positions for the next of several packed documents
            return self.subject.logits(tokens, positions, torch.ones_like(tokens))
        except NotChecked:
            return self.subject.logits(tokens, positions)

    @cached_property
    def causal(self) -> bool:
        """Whether a token sees those before it only: another last token leaves the others as they were."""
        other = torch.cat((self.tokens[:, :-1], self.tokens[:, :1]), dim=1)
        return self.close(self.subject.logits(other, self.positions)[:, :-1], self.logits()[:, :-1])

    @cached_property
    def scale(self) -> float:
        logits = self.logits()
        return max(logits.where(logits.isfinite(), 0).abs().max().item(), torch.finfo(logits.dtype).tiny)

    def close(self, a: Tensor, b: Tensor) -> bool:
        apart = _apart(a, b).max().item()
        return apart <= self.certain or apart <= self.allowed

    def judged(
        self,
        what: str,
        theirs: Callable[[], Tensor],
        reference: Callable[[], Tensor],
        says: str,
        way_out: str,
        far: int = 0,
    ) -> Check:
        """The `Check` of two runs that must agree; ``far``: the largest position, where float32 angles are coarse."""
        check = Check(what=what, against="itself", verdict="not shown")
        try:
            if not self.finite.all():
                raise NotChecked("the logits are not finite")
            if self.by_design:  # measured before another call changes the frequencies
                _ = self.effect, self.allowed
            apart = _apart(theirs(), reference())
            allowed = self._allowed_for(apart.max().item(), far)
            beyond = (~(apart <= allowed)).any(0)
            moves = bool(beyond.any()) or self.effect > allowed
        except (NotChecked, Misuse) as reason:
            return replace(check, reason=str(reason))
        except Exception as error:  # a model's own code raises what it likes
            return replace(
                check, reason=f"the model cannot be run so: {type(error).__name__}: {first_line(error):.160}"
            )
        check = replace(check, difference=check.apart(size=apart.max().item(), of="logits"))
        if not moves:
            says = f"all positions halved move the logits by {self.effect:.1g}, which rounding may do"
            return replace(check, reason=says, difference=check.apart(size=None))
        if not beyond.any():
            return replace(check, verdict="right")
        check = replace(
            check,
            difference=check.apart(position=float(beyond.nonzero()[0])),
        )
        if self.by_design and max(far, self.last) >= self.threshold:
            return replace(check, verdict="right", cause=BY_DESIGN, reason=self.by_design)
        return replace(check, verdict="wrong", cause=f"not {what}", reason=says, way_out=way_out)

    def _allowed_for(self, apart: float, far: int) -> float:
        """Measured in this model only where it decides: roundings alone mostly allow what is there."""
        bound = OF_ANGLES * far * self.scale
        if apart <= self.certain + bound and self.effect > NOISE * (self.certain + bound):
            return self.certain + bound
        return self.allowed + bound


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """``[B, S]``: the largest difference of each token's logits; infinite where one of them is no number."""
    if a.shape != b.shape:
        raise NotChecked(f"two calls for the same tokens give logits of shapes {[*a.shape]} and {[*b.shape]}")
    apart = (a.double() - b.double()).abs().masked_fill(a == b, 0.0).flatten(2).amax(-1)
    return torch.where(apart.isnan(), torch.inf, apart)
