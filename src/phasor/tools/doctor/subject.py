"""What the laws run: something that makes logits of tokens at positions, and says what else it can do."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from ...support.errors import first_line


class NotChecked(Exception):
    """A check that this subject does not support; the message says why."""


class Subject:
    """The least that the laws need: ``logits``. Tokens and positions are ``[B, S]``, logits ``[B, S, vocabulary]``.

    What a subject cannot do raises `NotChecked` with the reason, and the laws that need it are not checked.
    """

    name = "this callable"

    def logits(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """The logits of one call; ``mask [B, S]`` is 0 where a token is padding."""
        raise NotImplementedError

    def jittered(self, tokens: Tensor, positions: Tensor, seed: int) -> Tensor:
        """The logits after one rounding step, up or down, in every embedded value: what rounding alone does."""
        return self.logits(tokens, positions)

    def first_not_finite(self, tokens: Tensor, positions: Tensor) -> str:
        """Where values that are no numbers come from; empty where that is not seen."""
        return ""

    def blurred(self, tokens: Tensor, positions: Tensor, by: float, seed: int) -> Tensor:
        """The logits with every angle of rotary tables off by ``by``, up or down, where they can be reached."""
        return self.logits(tokens, positions)

    def in_pieces(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        """The logits of calls one after the other, of so many tokens each, through one cache."""
        raise NotChecked(f"{self.name} keeps no cache that could be given")

    def packed(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        """The logits of one row ``[1, S]`` that holds documents of these lengths, none of which sees another."""
        raise NotChecked(f"{self.name} takes no mask that could keep documents apart")

    @contextlib.contextmanager
    def still(self) -> Iterator[list[Any]]:
        """Inside, rotary tables rotate nothing, so a fault that remains is not theirs. The list gets the true ones."""
        raise NotChecked(f"{self.name} forms its tables where they cannot be changed")
        yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, the encoder beside a decoder says nothing."""
        raise NotChecked(f"{self.name} has no encoder beside it")
        yield

    def plainly(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The logits with the plain (eager) implementation of attention."""
        raise NotChecked(f"{self.name} has one implementation of attention")


class Misuse(ValueError):
    """A caller's own function is none that the laws can ask: it raises, or returns no logits."""


class BlackBox(Subject):
    """A function ``(tokens, positions) -> logits`` of which nothing else is known."""

    def __init__(self, call: Callable[[Tensor, Tensor], Any]) -> None:
        self.call = call
        self.name = getattr(call, "__name__", type(call).__name__)

    def logits(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            raise NotChecked(f"{self.name} takes no mask of padding")
        try:
            logits = self.call(tokens, positions)
        except Exception as error:
            last = int(positions.max())
            asked = f"tokens {list(tokens.shape)} at positions up to {last}"
            raise Misuse(
                f"model must take {asked}, and {self.name} raises {type(error).__name__}: {first_line(error)}"
            ) from error
        if not isinstance(logits, Tensor) or logits.shape[:2] != tokens.shape:
            got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise Misuse(f"model must return logits [{tokens.shape[0]}, {tokens.shape[1]}, ...], got {got}")
        return logits
