"""What a stretch costs on prompts that needed none, and which pairs still leave the range they were trained on."""

import math
from dataclasses import dataclass

import torch

from phasor import ModelRotary, RotarySpec
from phasor.tools.inspect.disagreement import compare

TURN = 2 * math.pi


@dataclass(frozen=True)
class Cost:
    """How one rotation changes inside the trained length, and at the new one.

    - ``changed`` of ``pairs`` rotate differently; pair ``first`` is 0.1 rad off from position ``position`` on.
    - ``score``: scores grow by this factor (the squared attention factors, and DeepSeek's on the softmax), also at
      distance 0.
    - ``drift``: by how much the mean of cos over the pairs differs, on average over all trained distances.
    - ``unturned``: pairs that never completed a turn in training; ``leaving``: those of them that now pass the angle
      they reached there. A layer with a window reaches its window's distances alone.
    """

    layers: tuple[int, ...]
    pairs: int
    changed: int
    first: int | None
    position: float | None
    score: float
    drift: float
    unturned: int
    leaving: int

    def describe(self) -> list[str]:
        lines = [
            f"{self.leaving} of {self.pairs} pairs pass the angles of training ({self.unturned} never completed a turn)"
        ]
        if not self.changed and self.score == 1.0:
            return ["short prompts: nothing changes", *lines]
        where = "" if self.first is None else f"; pair {self.first} is 0.1 rad off from {self.position:,} on"
        return [
            f"short prompts: {self.changed} of {self.pairs} pairs rotate differently{where}; "
            f"scores times {self.score:.4g}, "
            f"mean of cos off by {self.drift:.3g}",
            *lines,
        ]


def costs(before: ModelRotary, after: ModelRotary, trained: int, length: int) -> list[Cost]:
    """One `Cost` for each different rotation, and window: ``before`` has those of training, ``after`` those that run.

    >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("a",), num_heads=1)
    >>> costs(toy, toy, 100, 200)[0].describe()
    ['short prompts: nothing changes', '2 of 4 pairs pass the angles of training (2 never completed a turn)']
    """
    groups: dict[tuple[RotarySpec, RotarySpec, int, int], list[int]] = {}
    for i, (old, new) in enumerate(zip(before.layers, after.layers, strict=True)):
        if old is not None and new is not None:
            groups.setdefault((old, new, _reach(before, i, trained), _reach(after, i, length)), []).append(i)
    softmax = after.softmax_factor / before.softmax_factor
    return [
        _cost(old, new, tuple(layers), trained, length, softmax, reached, reaches)
        for (old, new, reached, reaches), layers in groups.items()
    ]


def _reach(model: ModelRotary, layer: int, length: int) -> int:
    """The longest distance of a layer in a sequence of ``length`` tokens."""
    window = model.windows[layer] if model.windows else None
    return min(window or length, length) - 1


def _cost(
    old: RotarySpec, new: RotarySpec, layers: tuple[int, ...], trained: int, length: int, softmax: float,
    reached: int, reaches: int,
) -> Cost:  # fmt: skip
    apart = compare(old, new, trained)
    was, now, far = old.inv_freq(trained), new.inv_freq(trained), new.inv_freq(length)
    slow = was * reached < TURN
    leaving = slow & (far * reaches > was * reached * (1 + 1e-9)) & (was > 0)
    return Cost(
        layers=layers, pairs=old.pairs, changed=apart.pairs_apart, first=apart.pair, position=apart.position,
        score=apart.score_ratio * softmax, drift=_drift(was, now, trained), unturned=int((slow & (was > 0)).sum()),
        leaving=int(leaving.sum()),
    )  # fmt: skip


def _drift(was: torch.Tensor, now: torch.Tensor, trained: int) -> float:
    """Mean over distances of ``|mean cos(m now) - mean cos(m was)|``, at up to 512 distances spread by ratio."""
    steps = torch.logspace(0, math.log10(max(trained - 1, 1)), 512, dtype=torch.float64).round().unique()
    means = [torch.outer(steps, speeds).cos().mean(1) for speeds in (was, now)]
    return float((means[0] - means[1]).abs().mean())
