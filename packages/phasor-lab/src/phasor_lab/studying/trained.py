"""For which length a model was trained, as its loss tells: more context helps, or does nothing, up to that length."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..running.model import RunningModel
from ..running.windows import ShortText

SHORTEST, LONGEST = 32, 16384  # tokens of context, in doublings
SCORED = 8192  # tokens whose loss is compared
STEPS = 4  # of an octave
RISE = 0.03  # nats per token
CERTAIN = 3.0  # standard errors
LOGITS = 2**29  # of one pass


@dataclass(frozen=True)
class TrainedLength:
    """What more context does to the loss of the same tokens.

    - ``contexts``: tokens of context from which a step of a quarter octave begins; ``rises``: nats per token in that
      step over the best shorter context; ``errors``: their standard errors.
    - ``longest``: the longest context that was tried. It is the first doubling at whose end the loss is higher by
      `RISE`, or all that the text allows.
    """

    contexts: tuple[int, ...]
    rises: tuple[float, ...]
    errors: tuple[float, ...]
    longest: int

    @property
    def tokens(self) -> int | None:
        """Where the loss begins to rise, and rises to the end; None where it does not up to ``longest``."""
        risen = None
        for context, rise, error in zip(self.contexts[::-1], self.rises[::-1], self.errors[::-1], strict=True):
            if not _is_rise(rise, error):
                break
            risen = context
        return risen

    def __str__(self) -> str:
        if self.tokens is None:
            return f"no end up to {self.longest:,} tokens: the loss does not rise by {RISE} nats and stay there"
        rise = self.rises[self.contexts.index(self.tokens)]
        return f"about {self.tokens:,} tokens: from there on more context costs {rise:.2f} nats and more"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"tokens": self.tokens, **{k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}}


def trained_length(model: RunningModel, tokens: Tensor) -> TrainedLength:
    """From the weights and a text ``tokens`` ``[n]``; what the config declares is not looked at.

    The same tokens of the text are scored with 16 to 31 tokens of context, with 32 to 63, and so on. Beyond the trained
    length the model meets angles that it never saw, and its loss rises.
    """
    longest = _longest(len(tokens), model.vocabulary)
    start = longest // 2
    count = min(max(SCORED, longest), (len(tokens) - 1 - start) // (longest // 2) * (longest // 2))
    contexts: list[int] = []
    rises: list[float] = []
    errors: list[float] = []
    best, length = torch.full((count,), math.inf, dtype=torch.float64), SHORTEST
    while True:
        half = length // 2
        begins = torch.arange(start - half, start - half + count, half)
        losses = model.token_losses(tokens[begins[:, None] + torch.arange(length + 1)], last=half).flatten()
        if length > SHORTEST:
            more = (losses - best).view(-1, half)
            edges = [round(half * 2 ** (step / STEPS)) - half for step in range(STEPS + 1)]
            for first, last in pairwise(edges):
                part = more[:, first:last]
                contexts.append(half + first)
                rises.append(float(part.mean()))
                errors.append(float(part.std()) / math.sqrt(part.numel()))
            if _is_rise(rises[-1], errors[-1]):
                break
        best = min(best, losses, key=lambda losses: float(losses.mean()))
        if length == longest:
            break
        length *= 2
    return TrainedLength(tuple(contexts), tuple(rises), tuple(errors), length)


def _is_rise(rise: float, error: float) -> bool:
    return rise >= max(RISE, CERTAIN * error)


def _longest(count: int, vocabulary: int) -> int:
    """The longest doubling of which the text holds two halves and a start, and memory the logits of one half."""
    if count <= 3 * SHORTEST:
        raise ShortText(f"tokens must have at least {3 * SHORTEST + 1} tokens, got {count}; give a longer text")
    longest = 2 * SHORTEST
    while 2 * longest <= LONGEST and longest * vocabulary <= LOGITS and 3 * longest < count:
        longest *= 2
    return longest
