"""A model between two steps of its training: optimizer, running mean of the weights, history."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..run_folder import checkpoint
from .batches import collate
from .config import TrainConfig
from .data.align import Encoded
from .metrics import Score
from .model import SpanModel

HEAD_LR = 1e-3  # on a pretrained encoder
NUMBER = (int, float)
EPOCH = {
    "epoch": int, "step": int, "loss": NUMBER, "f1": NUMBER, "precision": NUMBER, "recall": NUMBER,
    "counts": [int], "seconds": NUMBER,
}  # fmt: skip
STATE = {"run": {"model": dict, "train": dict, "data": dict}, "step": int, "loss": NUMBER, "history": [EPOCH]}


class Session:
    """``step`` steps are done, ``per_epoch`` make an epoch. ``history`` has what is logged of every epoch."""

    def __init__(self, model: SpanModel, config: TrainConfig, per_epoch: int) -> None:
        self.model, self.config, self.per_epoch = model, config, per_epoch
        self.steps = config.epochs * per_epoch
        self.step, self.loss = 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.mean = [p.detach().clone() for p in self.weights]
        self.optimizer = checkpoint.adamw(
            [
                {"params": list(model.encoder.parameters()), "peak": config.lr},
                {"params": list(model.head.parameters()), "peak": head_lr(model, config)},
            ],
            weight_decay=config.weight_decay,
        )
        self.tensors = checkpoint.tensors_of(model, self.optimizer, self.mean)

    @property
    def epoch(self) -> int:
        return self.step // self.per_epoch

    @property
    def finished(self) -> bool:
        """All epochs are done, or dev F1, once above 0, has not improved for ``patience`` epochs."""
        scores = [entry["f1"] for entry in self.history]
        patience = self.config.patience
        waited = scores[::-1].index(max(scores)) if scores else 0
        return len(scores) == self.config.epochs or bool(patience and waited >= patience and max(scores) > 0)

    def advance(self, windows: Sequence[Encoded]) -> float:
        """One update; returns the loss."""
        config = self.config
        torch.manual_seed(config.seed * 1_000_003 + self.step)  # dropout is a function of (seed, step)
        self.model.train()
        for options in self.optimizer.param_groups:
            options["lr"] = learning_rate(options["peak"], config.warmup, self.step, self.steps)
        batch = collate(windows).to(self.weights[0].device)
        with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=config.bfloat16):
            loss = self.model.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        # early on the mean must not remember the random start
        keep = min(config.average, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.weights], 1 - keep)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ValueError(
                f"lr must let the training converge, got lr={config.lr:g}: loss {value} at step {self.step}"
            )
        self.step += 1
        self.loss += value
        return value

    def record(self, score: Score, seconds: float) -> bool:
        """An epoch is over with this score on the development data. Returns whether none before was better."""
        entry = {
            "epoch": self.epoch,
            "step": self.step,
            "loss": self.loss / self.per_epoch,
            "f1": score.f1,
            "precision": score.precision,
            "recall": score.recall,
            "counts": [score.correct, score.predicted, score.gold],
            "seconds": round(seconds, 1),
        }
        best = score.f1 >= max((past["f1"] for past in self.history), default=0.0)
        self.history.append(entry)
        self.loss = 0.0
        return best

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model has the running mean of its weights inside the block, and its own again after it."""
        if not self.config.average:
            yield
            return
        own = [p.detach().clone() for p in self.weights]
        self._set(self.mean)
        try:
            yield
        finally:
            self._set(own)

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.copy_(value)

    def save(self, path: Path, run: dict[str, Any]) -> None:
        about = {"run": run, "step": self.step, "loss": self.loss, "history": self.history}
        checkpoint.save(path, self.tensors, about)

    def resume(self, path: Path, run: dict[str, Any]) -> None:
        """Go on from ``path``, if it exists. Raises ``ValueError`` if it is of another run, naming what differs."""
        if not checkpoint.is_there(path):
            return
        tensors, state = checkpoint.load(path, STATE)
        theirs, ours = _flat(state["run"]), _flat(run)
        both = {key: (ours.get(key), theirs.get(key)) for key in sorted(ours.keys() | theirs.keys())}
        checkpoint.check_same(path, {key: two for key, two in both.items() if two[0] != two[1]})
        step, history = state["step"], state["history"]
        epochs = [(entry["epoch"], entry["step"], len(entry["counts"])) for entry in history]
        if not 0 < step <= self.steps or epochs != [
            (i, i * self.per_epoch, 3) for i in range(1, step // self.per_epoch + 1)
        ]:
            raise checkpoint.fault(path, f"step {step} of {self.steps} and a history of {len(history)} epochs")
        checkpoint.fill(path, self.tensors, tensors)
        self.step, self.loss, self.history = step, state["loss"], history


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """``{"seed": 0, ..., "data.dev": "…"}``, so that an error can name what differs."""
    parts = (("", run["model"]), ("", run["train"]), ("data.", run["data"]))
    return {prefix + key: value for prefix, settings in parts for key, value in settings.items()}


def head_lr(model: SpanModel, config: TrainConfig) -> float:
    """The head's peak: a new layer on pretrained weights needs more than what these bear."""
    if config.head_lr is not None:
        return config.head_lr
    return HEAD_LR if model.config.encoder == "pretrained" else config.lr


def learning_rate(peak: float, warmup: float, step: int, steps: int) -> float:
    """Linear warmup to ``peak``, then a cosine down to 0.

    >>> [round(learning_rate(1.0, 0.1, step, 100), 3) for step in (0, 9, 54)]
    [0.1, 1.0, 0.5]
    """
    warm = max(1, round(warmup * steps))
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (step + 1 - warm) / max(1, steps - warm)))
