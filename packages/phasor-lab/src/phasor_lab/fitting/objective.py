"""What a fit minimises: the loss at the longer length, and a share of that at the trained one."""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from ..running.windows import windows_of
from .loss import DivisorLoss

INSIDE = 0.5  # the weight of the loss at the trained length, beside that at the longer one
WINDOWS = 12  # for a score, of either length
FAR, NEAR = 2048, 1024  # tokens of one step of the search, in windows of either length


class Objective:
    """The loss of divisors at ``length`` plus `INSIDE` times that at ``trained``, in nats per token of ``tokens``
    ``[n]``; with ``attention`` on cos and sin. Every evaluation is counted in ``tried``, and told.
    """

    def __init__(
        self, loss: DivisorLoss, tokens: Tensor, length: int, trained: int, attention: float, seed: int,
        tell: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.loss, self.tokens, self.length, self.trained = loss, tokens, length, trained
        self.attention, self.seed, self.tell, self.tried = attention, seed, tell, 0
        self.far, self.near = (windows_of("the text to fit on", tokens, n, WINDOWS) for n in (length, trained))

    def score(self, divisors: Tensor) -> float:
        """On windows that are always the same."""
        self._count()
        far, near = (self.loss.at(windows, divisors, self.attention) for windows in (self.far, self.near))
        return far + INSIDE * near

    def gradient(self, step: int, logarithms: Tensor) -> Tensor:
        """``[1 + P]``: the value and its slope by the logarithm of each divisor, on windows that the step draws."""
        self._count()
        dice = random.Random(f"{self.seed} {step}")
        far, near = (
            some_windows(self.tokens, self.length, FAR, dice),
            some_windows(self.tokens, self.trained, NEAR, dice),
        )
        slopes = [self.loss.gradient(windows, logarithms, self.attention) for windows in (far, near)]
        return slopes[0] + INSIDE * slopes[1]

    def _count(self) -> None:
        self.tried += 1
        self.tell(self.tried)


def some_windows(tokens: Tensor, length: int, count: int, dice: random.Random) -> Tensor:
    """Windows ``[n, length + 1]`` from random places, with about ``count`` tokens, two at least."""
    starts = [dice.randrange(len(tokens) - length) for _ in range(max(2, count // length))]
    return torch.stack([tokens[start : start + length + 1] for start in starts])
