"""What trainings share while they run: the optimizer, losses that must be finite, and the bar that a person sees."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def progress_bar(name: str, first: int, steps: int, shown: bool) -> Iterator[Callable[..., None]]:
    """A bar on stderr, or nothing if not ``shown``, as a function of a step's loss and a note beside it.

    Its third argument is how many steps there are, if that has changed. Lines printed meanwhile stand above the bar.
    """
    if not shown:
        yield lambda loss, note="", steps=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=steps, completed=first, status="")

        def advance(loss: float, note: str = "", steps: int | None = None) -> None:
            bar.update(task, advance=1, total=steps, status=f"loss {loss:.3f}  {note}")

        yield advance
