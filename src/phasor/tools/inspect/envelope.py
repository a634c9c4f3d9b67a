"""A curve over many distances as a band, which no oscillation escapes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...rotary.spec import RotarySpec
from .curves import decay, decay_bound
from .numbers import SpecFacts

Curve = Callable[[RotarySpec, Tensor, int | None, int | None], Tensor]
IN_EACH = 128  # distances looked at in one stretch


def envelope(
    facts: SpecFacts, columns: int, axis: int | None = None, of: Curve | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Distances from 1 to the farthest in up to ``columns`` stretches, and the lowest and highest `decay` in each.

    ``(starts, low, high)``. Stretches are even on a log scale. In a short one every distance is looked at, in a long
    one `IN_EACH` of them, and the first negative one in any case. Real coordinates begin at 1/64. ``of``: another curve
    than `decay`, with its arguments.

    >>> from phasor.inspect import spec_facts
    >>> starts, low, high = envelope(spec_facts(RotarySpec(head_dim=128), 4096), 8)
    >>> bool((low <= high).all()), bool((low[starts > 1024] < 0).any())  # negative from 1707 on
    (True, True)
    """
    edges = log_distances(facts, columns + 1).unique()
    real = facts.spec.coordinates == "real"
    starts = edges[:-1] if len(edges) > 1 else edges
    ends = edges[1:] if len(edges) > 1 else edges + 1
    rows = []
    for n, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        last = n == len(starts) - 1
        inside = torch.linspace(start, end if real or last else end - 1, IN_EACH, dtype=torch.float64)
        first = facts.first_negative
        if first is not None and start <= first <= end:
            inside[0 if first == start else -1] = first
        rows.append(inside if real else inside.round().long())
    once, back = torch.stack(rows).unique(return_inverse=True)
    curve = (of or decay)(facts.spec, once, facts.seq_len, axis)[back]
    return starts, curve.min(-1).values, curve.max(-1).values


def log_distances(facts: SpecFacts, count: int) -> Tensor:
    """Distances up to the farthest, evenly spaced on a log scale: whole ones, unless coordinates are real."""
    last = math.log10(max(2, facts.farthest))
    if facts.spec.coordinates == "real":
        return torch.logspace(-math.log10(64), last, count, dtype=torch.float64)
    return torch.logspace(0, last, count, dtype=torch.float64).round().long()


def bound(spec: RotarySpec, distances: Tensor, seq_len: int | None, axis: int | None) -> Tensor:
    """`decay_bound` as a curve for `envelope`; it is one of all axes together."""
    return decay_bound(spec, distances, seq_len)
