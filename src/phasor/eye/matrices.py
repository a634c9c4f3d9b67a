"""The matrices of a stretch of a tape: what each channel of a head and token becomes of which inputs.

Each input belongs to one head and token, or heads share theirs in groups, as queries do one key.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

import torch
from torch import Tensor

from .linear import Cut, gradients, replay
from .tape import Tape

NOTHING = 1e-12  # of the largest entry: what is smaller is rounding of float64
T = TypeVar("T")
MOST_SEEDS = 1_000_000  # elements of one batch of seeds: 8 MB, and a few times as much for their gradients


@dataclass(frozen=True)
class Axes:
    """Where a value holds tokens and channels: two of its axes; all others together are its heads."""

    tokens: int
    channels: int

    def arranged(self, value: Tensor) -> Tensor:
        """``[heads, tokens, channels]``."""
        value = value.movedim((self.tokens, self.channels), (-2, -1))
        return value.reshape(-1, *value.shape[-2:])


class NoRotation(Exception):
    """Why a stretch consists of no planes; ``moves``: whether what it does differs from token to token."""

    def __init__(self, reason: str, moves: bool = True) -> None:
        super().__init__(reason)
        self.moves = moves


class Mixed(NoRotation):
    """Channels follow from others in a way that no rotation has."""


def axes_of(value: Tensor, tokens: int, transposed: bool) -> Axes:
    """Raises `NoRotation` for a value without an axis of so many tokens."""
    if transposed:
        return Axes(value.ndim - 1, value.ndim - 2)
    for axis in (value.ndim - 2, *range(value.ndim - 3, -1, -1)):
        if axis >= 0 and value.shape[axis] == tokens:
            return Axes(axis, value.ndim - 1)
    raise NoRotation(f"no axis of its {tuple(value.shape)} holds the {tokens} tokens", moves=False)


def matrices_of(tape: Tape, cut: Cut, target: int, axes: Axes, most: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """``[heads, tokens, channels, inputs]``, and the number of each input among all elements of the sources.

    ``first``: the first token that is looked at.
    """
    with torch.enable_grad():
        y, xs = replayed(tape, cut, target, axes)
        y = y[:, first:]
        if y.numel() * y.shape[-1] > most:
            raise NoRotation("it has too many elements for its whole matrix")
        found = _apart(y, xs)
        if found is None:  # keys that several queries use
            found = _in_groups(y, xs)
    return found


def replayed(tape: Tape, cut: Cut, target: int, axes: Axes) -> tuple[Tensor, list[Tensor]]:
    """A target ``[heads, tokens, channels]`` in float64, and the sources that it has gradients by."""
    xs = [tape.values[i].detach().double().clone().requires_grad_() for i in cut.sources]
    y = axes.arranged(replay(tape, cut.operations, dict(zip(cut.sources, xs, strict=True)), target))
    if not y.requires_grad or y.is_complex():
        raise NoRotation("it does not follow from the data in real numbers", moves=False)
    return y, xs


def _apart(y: Tensor, xs: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """The matrices where each input belongs to one head and token; None where some belong to several.

    Then the sum over heads and tokens of each channel holds no two entries in one place.
    """
    found = owned(y, xs)
    if found is None:
        return None
    used, owners = found
    heads, tokens, channels = y.shape
    filled, width = _widths(owners, heads * tokens)
    numbers = torch.zeros(heads * tokens, width, dtype=torch.int64)
    numbers[filled] = (inputs := used.nonzero().flatten()[owners.argsort(stable=True)]).reshape(-1, width)
    matrices = torch.zeros(heads * tokens, channels, width, dtype=torch.float64)
    for some in _batches(channels, y.numel()):
        seeds = torch.zeros(len(some), heads * tokens, channels, dtype=torch.float64)
        seeds[range(len(some)), :, some] = 1.0
        entries = gradients(y, xs, seeds)[:, inputs]
        matrices[filled, some.start : some.stop] = entries.reshape(len(some), -1, width).transpose(0, 1)
    nothing = NOTHING * torch.linalg.vector_norm(matrices, math.inf)
    matrices[~((matrices > nothing) | (matrices < -nothing))] = 0.0
    return matrices.reshape(heads, tokens, channels, width), numbers.reshape(heads, tokens, width)


def owned(y: Tensor, xs: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Which inputs ``y [heads, tokens, channels]`` depends on, and to which head and token each of these belongs.

    Two sums of all outputs, with other random weights for heads and tokens, say it by their ratio. None where some
    belong to several.
    """
    heads, tokens, channels = y.shape
    made = torch.Generator().manual_seed(1)
    weights = 1 + torch.rand(2, heads * tokens, 1, dtype=torch.float64, generator=made)
    mixed = weights * (1 + torch.rand(channels, dtype=torch.float64, generator=made))
    first, second = gradients(y, xs, mixed)
    used = first != 0
    ratios, order = (weights[1] / weights[0]).flatten().sort()
    ratio = second[used] / first[used]
    at = torch.searchsorted(ratios, ratio).clamp(max=len(ratios) - 1)
    below = (at - 1).clamp(min=0)
    at = torch.where((ratios[below] - ratio).abs() < (ratios[at] - ratio).abs(), below, at)
    return None if ((ratios[at] - ratio).abs() > 1e-9).any() else (used, order[at])


def _widths(owners: Tensor, count: int) -> tuple[Tensor, int]:
    """Which of so many heads and tokens own inputs, and how many each of these has."""
    counts = torch.bincount(owners, minlength=count)
    width, filled = int(counts.max()), counts > 0
    if not width:
        raise NoRotation("nothing of the data reaches it", moves=False)
    if not bool((counts[filled] == width).all()):
        raise NoRotation("its tokens depend on unequal numbers of inputs")
    return filled, width


def _in_groups(y: Tensor, xs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The matrices where heads share their inputs: those of as few groups of heads as do not."""
    found = by_groups(len(y), lambda group: _apart(y[group], xs))
    if found is None:
        raise Mixed("its tokens depend on the same inputs")
    return _joined(found[0], found[1].flatten().argsort())


def by_groups(heads: int, look: Callable[[Tensor], T | None]) -> tuple[list[T], Tensor] | None:
    """What is found in each of the first equal groups of heads in all of which anything is, and those groups.

    ``[groups, heads of one]``: 2, 3, ... of them, in both orders in which heads may be repeated.
    """
    for count in (n for n in range(2, heads + 1) if heads % n == 0):
        for order in (torch.arange(heads).view(-1, count).T, torch.arange(heads).view(count, -1)):
            found = list(takewhile(lambda one: one is not None, map(look, order)))
            if len(found) == count:
                return [one for one in found if one is not None], order
    return None


def _joined(found: list[tuple[Tensor, Tensor]], order: Tensor) -> tuple[Tensor, Tensor]:
    if len({matrices.shape[1:] for matrices, _ in found}) > 1:
        raise NoRotation("its heads depend on unequal numbers of inputs")
    return torch.cat([m for m, _ in found])[order], torch.cat([n for _, n in found])[order]


def _batches(channels: int, size: int) -> Iterable[range]:
    step = max(1, MOST_SEEDS // max(size, 1))
    return (range(i, min(i + step, channels)) for i in range(0, channels, step))
