"""Agreement: how far phasor's result is from the model's own."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROUNDINGS = 4  # steps of the number format by which two ways of writing one formula may differ


@dataclass(frozen=True)
class Agreement:
    """The largest difference between two results, in steps of their number format and as a number.

    >>> Agreement.of(torch.ones(2), torch.ones(2))
    Agreement(difference=0.0, steps=0.0)
    >>> Agreement.of(torch.ones(2), torch.ones(2) + 2**-23).close, Agreement.of(torch.ones(2), torch.zeros(2)).close
    (True, False)
    """

    difference: float
    steps: float

    @classmethod
    def of(cls, theirs: Any, ours: Any) -> "Agreement":
        """Of two results of one call: tensors, or tuples of them; another shape or dtype is no agreement at all."""
        pairs = list(_tensors(theirs, ours))
        found = [_of_tensors(a, b) for a, b in pairs]
        return worst(found) if found else NONE

    @property
    def equal(self) -> bool:
        return self.difference == 0

    @property
    def close(self) -> bool:
        """Whether both are the same formula, perhaps with other roundings."""
        return self.steps <= ROUNDINGS

    def __str__(self) -> str:
        return "bit-equal" if self.equal else f"max difference {self.difference:.1e}"


NONE = Agreement(float("inf"), float("inf"))


def worst(found: Iterable[Agreement]) -> Agreement:
    return max(found, key=lambda a: a.steps)


def _tensors(theirs: Any, ours: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(theirs, tuple | list) and isinstance(ours, tuple | list) and len(theirs) == len(ours):
        for a, b in zip(theirs, ours, strict=True):
            yield from _tensors(a, b)
    else:
        yield theirs, ours


def _of_tensors(a: Any, b: Any) -> Agreement:
    if a is None and b is None:
        return Agreement(0.0, 0.0)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return NONE
    difference = (a.to(torch.complex128 if a.is_complex() else torch.float64) - b).abs().max().item()
    if difference != difference:  # not a number
        return NONE
    scale = max(a.abs().max().item(), torch.finfo(a.dtype).tiny)
    return Agreement(difference, difference / (scale * torch.finfo(a.dtype).eps))
