"""What trainings share while they run: the optimizer, its learning rate, losses that must be finite, and threads."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

WARMUP, WEIGHT_DECAY = 0.05, 0.01  # the share of the steps in which the learning rate rises; AdamW's


def learning_rate(peak: float, step: int, steps: int, least: float = 0.0) -> float:
    """Linear warmup to ``peak``, then a cosine down to the share ``least`` of it.

    >>> [round(learning_rate(1.0, step, 100), 3) for step in (0, 4, 52)], round(learning_rate(1.0, 99, 100, 0.1), 3)
    ([0.2, 1.0, 0.492], 0.1)
    """
    warm = max(1, round(WARMUP * steps))
    if step < warm:
        return peak * (step + 1) / warm
    done = (step + 1 - warm) / max(1, steps - warm)
    return peak * ((1 + least) / 2 + (1 - least) / 2 * math.cos(math.pi * done))


def adamw(groups: Any, **options: Any) -> torch.optim.AdamW:
    """AdamW whose moments exist before the first step, equal to those it makes itself, so that a checkpoint fits."""
    optimizer = torch.optim.AdamW(groups, fused=True, **options)
    for group in optimizer.param_groups:
        for weight in group["params"]:
            moments = {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
            optimizer.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}
    return optimizer


def check_loss(loss: float, step: int, **settings: float) -> None:
    """Raise ``ValueError`` for a loss that is infinite or no number, with the settings that can make it so."""
    if not math.isfinite(loss):
        given = ", ".join(f"{name}={value:g}" for name, value in settings.items())
        names = ", ".join(settings)
        raise ValueError(f"{names} must let the training converge, got {given} and a loss of {loss} at step {step}")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch's threads, for a while.

    Small models are fastest with one unless the machine is idle: threads that wait for one that another program has
    displaced spin (two of them, with two cores and three programs: a fifteenth of the speed of one).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
