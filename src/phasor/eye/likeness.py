"""An operator by one that was seen elsewhere: three gradients, where the whole matrix takes one for each channel.

Rotations of one model differ in their angles, and seldom in which channels hang together. Whether they do is looked at.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from .linear import Cut, gradients
from .matrices import NOTHING, Axes, by_groups, owned, replayed
from .operator import Operator
from .tape import Tape


def as_in(others: Sequence[Operator], tape: Tape, cut: Cut, target: int, axes: Axes) -> Operator | None:
    """The operator of a stretch in which the same channels hang together as in one of ``others``; None for any other.

    Raises what the replay of the stretch raises.
    """
    if not others:
        return None
    with torch.enable_grad():
        y, xs = replayed(tape, cut, target, axes)
        for other in others:
            alike = _alike(other, y, xs) if y.shape[-1] == other.channels else None
            if alike is not None and (found := _operator(other, *alike, cut, target)) is not None:
                return found
    return None


def _alike(other: Operator, y: Tensor, xs: list[Tensor]) -> tuple[Tensor, Tensor, int] | None:
    """As `_of_group`, and how many heads have inputs of their own."""
    together = _of_group(other, y, xs)
    if together is not None:
        return together[0], together[1], len(y)
    found = by_groups(len(y), lambda group: _of_group(other, y[group], xs))
    if found is None:
        return None
    parts, order = found
    whole, origin = (torch.cat([one[i] for one in parts])[order.flatten().argsort()] for i in (0, 1))
    return whole, origin, order.shape[1]


def _of_group(other: Operator, y: Tensor, xs: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """``[heads, tokens, 2, inputs]``: by what each input is multiplied in the first and in the second member that it
    goes to; and the first of them, ``[heads, 1, tokens]``. None where one goes elsewhere.

    One gradient for all first members, one for all second ones, and one of a mixture, which says if there is more.
    """
    found = owned(y, xs)
    if found is None:
        return None
    used, owners = found
    heads, tokens, channels = y.shape
    counts = torch.bincount(owners, minlength=heads * tokens)
    if not bool((counts == other.width).all()):
        return None
    firsts, seconds = (torch.full((other.width,), channels) for _ in range(2))
    for (a, b), inputs in zip(other.pairs, other.inputs, strict=True):
        firsts[list(inputs)], seconds[list(inputs)] = a, b
    firsts[list(other.passing_inputs)] = torch.tensor(other.passing, dtype=torch.int64)
    seeds = torch.zeros(3, 1, channels, dtype=torch.float64)
    seeds[0, 0, firsts[firsts < channels]] = 1.0
    seeds[1, 0, seconds[seconds < channels]] = 1.0
    seeds[2] = 1 + torch.rand(channels, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    values = gradients(y, xs, seeds.expand(3, heads * tokens, channels))[:, used]
    values = values[:, owners.argsort(stable=True)].reshape(3, heads, tokens, other.width)
    mixture = torch.cat((seeds[2, 0], torch.zeros(1, dtype=torch.float64)))
    first = torch.where(firsts < channels, values[0], 0.0)
    second = torch.where(seconds < channels, values[1], 0.0)
    apart = first * mixture[firsts] + second * mixture[seconds] - values[2]
    if float(apart.abs().max()) > 1e-9 * float(values.abs().max()):
        return None
    origin = used.nonzero().flatten()[owners.argsort(stable=True)].view(heads, 1, tokens, -1)
    return torch.stack((first, second), 2), origin[..., 0]


def _operator(other: Operator, whole: Tensor, origin: Tensor, own_heads: int, cut: Cut, target: int) -> Operator | None:
    whole = torch.where(whole.abs() > NOTHING * whole.abs().max(), whole, 0.0)
    x, y = ([pair[i] for pair in other.inputs] for i in (0, 1))
    cos, sin = (whole[:, :, i][..., x].transpose(1, 2) for i in (0, 1))
    minus_sin, cos_too = (whole[:, :, i][..., y].transpose(1, 2) for i in (0, 1))
    size = float(whole.abs().max())
    if float(torch.maximum((cos - cos_too).abs().max(), (sin + minus_sin).abs().max())) > 1e-9 * size:
        return None
    passed = whole[:, :, 0][..., list(other.passing_inputs)].transpose(1, 2)
    turning = [i for i, turns in enumerate((sin != 0).any(-1).any(0).tolist()) if turns]
    still = [i for i in range(len(other.pairs)) if i not in turning]
    lost = [(c, p, cos[:, i]) for i in still for c, p in zip(other.pairs[i], other.inputs[i], strict=True)]
    return replace(
        other,
        pairs=tuple(other.pairs[i] for i in turning),
        inputs=tuple(other.inputs[i] for i in turning),
        cos=cos[:, turning],
        sin=sin[:, turning],
        passing=(*other.passing, *(c for c, _, _ in lost)),
        passing_inputs=(*other.passing_inputs, *(p for _, p, _ in lost)),
        passed=torch.cat((passed, *(values[:, None] for _, _, values in lost)), 1),
        origin=origin,
        factor=cut.factor,
        trained=cut.trained,
        operations=cut.operations,
        target=target,
        sources=cut.sources,
        own_heads=own_heads,
    )
