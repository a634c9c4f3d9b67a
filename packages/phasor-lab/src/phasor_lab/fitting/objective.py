"""What a fit minimises: the loss at the longer length, and a share of that at the trained one."""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from ..running.windows import windows_of
from .journal import Journal
from .loss import DivisorLoss

WINDOWS = 12  # for a score, of either length
FAR, NEAR = 2048, 1024  # tokens of one step of the search, in windows of either length


class Objective:
    """The loss of divisors at ``length`` plus ``inside`` times that at ``trained``, in nats per token of ``tokens``
    ``[n]``; with ``attention`` on cos and sin. Every evaluation is counted in ``tried``, told, and kept in a journal.
    """

    def __init__(
        self, loss: DivisorLoss, tokens: Tensor, length: int, trained: int, inside: float, attention: float, seed: int
    ) -> None:
        self.loss, self.tokens, self.length, self.trained = loss, tokens, length, trained
        self.inside, self.attention, self.seed = inside, attention, seed
        self.far, self.near = (windows_of("the text to fit on", tokens, n, WINDOWS) for n in (length, trained))
        self.tried = 0
        self.journal: Journal | None = None
        self.tell: Callable[[int], None] = lambda done: None

    def score(self, divisors: Tensor) -> float:
        """On windows that are always the same."""

        def both() -> Tensor:
            near = self.inside * self.loss.at(self.near, divisors, self.attention) if self.inside else 0.0
            return torch.tensor([self.loss.at(self.far, divisors, self.attention) + near], dtype=torch.float64)

        return float(self._value(both))

    def gradient(self, step: int, logarithms: Tensor) -> Tensor:
        """``[1 + P]``: the value and its slope by the logarithm of each divisor, on windows that the step draws."""
        dice = random.Random(f"{self.seed} {step}")

        def both() -> Tensor:
            far = some_windows(self.tokens, self.length, FAR, dice)
            slope = self.loss.gradient(far, logarithms, self.attention)
            if self.inside:
                near = some_windows(self.tokens, self.trained, NEAR, dice)
                slope = slope + self.inside * self.loss.gradient(near, logarithms, self.attention)
            return slope

        return self._value(both)

    def _value(self, compute: Callable[[], Tensor]) -> Tensor:
        self.tried += 1
        self.tell(self.tried)
        if self.journal is None:
            return compute()
        return torch.tensor(self.journal.value(lambda: compute().tolist()), dtype=torch.float64)


def some_windows(tokens: Tensor, length: int, count: int, dice: random.Random) -> Tensor:
    """Windows ``[n, length + 1]`` from random places, with about ``count`` tokens, two at least."""
    starts = [dice.randrange(len(tokens) - length) for _ in range(max(2, count // length))]
    return torch.stack([tokens[start : start + length + 1] for start in starts])
