"""What trainings share while they run: the optimizer, and losses that must be finite."""

import math
from typing import Any

import torch


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
