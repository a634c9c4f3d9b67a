"""What trainings share while they run: the optimizer, losses that must be finite, and the bar that a person sees."""

import math
from types import TracebackType
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


def check_loss(loss: float, lr: float, step: int) -> None:
    """Raise ``ValueError`` for a loss that is infinite or no number."""
    if not math.isfinite(loss):
        raise ValueError(f"lr must let the training converge, got lr={lr:g} and a loss of {loss} at step {step}")


class Progress:
    """A bar on stderr with the loss, the speed and the time left, or nothing if not ``shown``.

    Lines printed meanwhile stand above it.
    """

    def __init__(self, name: str, first: int, steps: int, shown: bool) -> None:
        self._bar: Any = None
        if not shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"), TimeRemainingColumn(), console=Console(stderr=True),
        )  # fmt: skip
        self._task = self._bar.add_task(name, total=steps, completed=first, status="")

    def advance(self, loss: float, tokens_per_second: float | None = None) -> None:
        if self._bar is not None:
            speed = "" if tokens_per_second is None else f"  {tokens_per_second:,.0f} tokens/s"
            self._bar.update(self._task, advance=1, status=f"loss {loss:.3f}{speed}")

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
