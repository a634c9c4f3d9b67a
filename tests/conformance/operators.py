"""One rotation of one model type: the model's own module and function against phasor, on the same q and k."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.models.configs import ModelRotary

from .by_hand import both_by_hand, by_hand
from .theirs import HEADS, Pair, functions_for, modules_for, tables, turned

NEAR_AND_FAR = (*range(8), 100, 4095, 32_767, 131_071)
ROUNDINGS = 8  # steps of the number format by which two orders of one sum may differ


class Outcome(NamedTuple):
    """The largest difference, absolute and in steps of the number format; ``None``: nothing could be compared."""

    difference: float | None
    steps: float | None

    @property
    def exact(self) -> bool:
        return self.difference == 0

    @property
    def close(self) -> bool:
        return self.steps is not None and self.steps <= ROUNDINGS


def log_scale(spec: RotarySpec) -> Tensor:
    """Of learned frequencies, in the model's parameter and in the spec's call."""
    return torch.linspace(-0.5, 0.3, spec.pairs)


def wrong(spec: RotarySpec) -> RotarySpec:
    """A spec whose angles are 5 % too large."""
    return spec.replace(position_scale=1.05 * spec.position_scale)


NOTHING = Outcome(None, None)


@dataclass(frozen=True)
class Case:
    """A spec of a part of a model, the word for its layers, and the config that the model's own code is built from."""

    spec: RotarySpec
    word: str
    model: ModelRotary
    config: Any


def cases(model: ModelRotary, config: Any) -> Iterator[Case]:
    """Every different spec under every word that its layers have, as the model's own code computes it."""
    for spec, word in dict.fromkeys(zip(model.layers, model.layer_types, strict=True)):
        if spec is not None:
            yield Case(spec.replace(angles=model.own_angles), word, model, config)


def positions_of(spec: RotarySpec) -> list[tuple[Tensor, int]]:
    """``[axes, S]`` positions and the length of their sequence; one more set inside the trained length if it counts."""
    far = torch.tensor(NEAR_AND_FAR)
    sets = [far]
    if spec.length_dependent:
        trained = getattr(spec.scaling, "original_max_position", None) or spec.scaling.max_position
        sets.append(far.clamp(max=trained - 1))
    return [(torch.stack([p.roll(axis) for axis in range(spec.axes.count)]), int(p.max()) + 1) for p in sets]


def heads(spec: RotarySpec, dtype: torch.dtype) -> Pair:
    """Random q and k; the first head of each is ones and zeros, whose images are cos and sin themselves."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, h, len(NEAR_AND_FAR), spec.head_dim, generator=generator) for h in HEADS)
    q[:, 0] = 1.0
    return q.to(dtype), k.to(dtype)


def compare(case: Case, dtype: torch.dtype, by: RotarySpec | None = None) -> Outcome:
    """The model's own q and k against phasor's (``by`` another spec, to see that it is noticed).

    Of all shapes that the model's code takes, the nearest counts.
    """
    by = by or case.spec
    if by_hand(case.config):
        return difference(*both_by_hand(case.config, case.model.part, by, dtype))
    outcomes = []
    for positions, length in positions_of(case.spec):
        q, k = heads(case.spec, dtype)
        ours = phasors(by, case.model.heads, positions, length, q, k)
        outcomes.append(_nearest(difference(theirs, ours) for theirs in own(case, positions, q, k)))
    return NOTHING if NOTHING in outcomes else max(outcomes, key=lambda o: o.steps)


def _nearest(outcomes: Iterable[Outcome]) -> Outcome:
    best = NOTHING
    for outcome in outcomes:
        if best == NOTHING or outcome.steps < best.steps:
            best = outcome
        if best.exact:
            break
    return best


def phasors(spec: RotarySpec, turn: int | None, positions: Tensor, length: int, q: Tensor, k: Tensor) -> Pair:
    """q and k turned by phasor, all heads or the first ``turn``."""
    more = {"log_scale": log_scale(spec)} if spec.learned else {}
    at = positions[0] if spec.axes.count == 1 else positions
    rotation = Rotation.at(spec, at, length if spec.length_dependent else None, dtype=q.dtype, **more)
    return tuple(torch.cat((apply_rotary(x[:, :turn], rotation), x[:, turn or len(x[0]) :]), dim=1) for x in (q, k))


def own(case: Case, positions: Tensor, q: Tensor, k: Tensor) -> Iterator[Pair]:
    """q and k as the model's own code turns them.

    The channels of latent attention that turn, and the heads that do, are cut out by the attention and not by the
    function, so the function gets them alone. Positions that a model scales before its module takes them are scaled.
    """
    functions = functions_for(type(case.config).__name__, case.model.part)
    spec, heads_that_turn = case.spec, case.model.heads
    first = spec.head_dim - spec.rotary_dim if spec.trailing else 0
    slices = dict.fromkeys(((first, first + spec.rotary_dim), (0, spec.head_dim)))
    scaled = [positions] if spec.position_scale == 1 else [positions * spec.position_scale, positions]
    for module, at in product(modules_for(case.config), scaled):
        if spec.learned:
            module.alpha.data.copy_(log_scale(spec))
        for given, function, (start, stop) in product(tables(module, case.word, at, q.dtype), functions, slices):
            a, b = (x[:, :heads_that_turn, :, start:stop] for x in (q, k))
            for result in turned(function, given, a, b, at):
                yield tuple(_put(x, y, start) for x, y in zip((q, k), result, strict=True))


def _put(x: Tensor, y: Tensor, start: int) -> Tensor:
    """``x`` with ``y`` in the place of its first heads and of its channels from ``start``."""
    whole = x.to(y.dtype, copy=True)
    whole[:, : y.shape[1], :, start : start + y.shape[-1]] = y
    return whole


def difference(theirs: Sequence[Tensor], ours: Sequence[Tensor]) -> Outcome:
    found = Outcome(0.0, 0.0)
    for a, b in zip(theirs, ours, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return Outcome(float("inf"), float("inf"))
        if not a.numel():
            continue
        gap = (a.double() - b.double()).abs().max().item()
        steps = gap / (torch.finfo(a.dtype).eps * max(a.double().abs().max().item(), 1e-30))
        found = max(found, Outcome(gap, steps))
    return found
