"""Training: batches and dropout are functions of (seed, step), so equal settings end with equal weights."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from phasor.cli.progress import progress as told
from phasor.cli.progress import silent
from phasor.support.lock import alone
from phasor.support.whole_files import check_file_target, remove_partial, write_whole

from ..run_folder.training import WEIGHT_DECAY, check_loss, learning_rate
from .config import TrainConfig
from .data import Example
from .data.windows import Encoded
from .metrics import Score, best_threshold, evaluate
from .model import CONFIG, ENCODER, TOKENIZER, WEIGHTS, SpanModel, collate, save
from .predict import align_for, predict_windows

LOG = "log.jsonl"
MOST = 8  # spans per token: no text has as many entities
BETAS = (0.9, 0.99)  # a run has a few thousand steps: the usual 0.999 would remember most of them
CLIP = 1.0
LEAST = 0.002  # the lowest probability that is looked at for the best threshold
POOL = 50  # batches sorted by length together: less padding, still another mixture every epoch
HEAD_LR = 1e-3  # of a new layer on pretrained weights, which bear less


@dataclass(frozen=True)
class TrainedSpans:
    """A finished training: its folder, its best epoch (from 1), the score on the
    development data there, and the seconds of all epochs."""

    folder: Path
    epochs: int
    best_epoch: int
    dev: Score
    seconds: float


def train(
    model: SpanModel,
    tokenizer: Any,
    data: Sequence[Example],
    dev: Sequence[Example],
    config: TrainConfig,
    folder: str | Path,
    *,
    device: str = "cpu",
    say: Callable[[str], None] = lambda line: None,
    progress: bool = False,
) -> TrainedSpans:
    """Train ``model``, from its start, in ``folder``.

    After the first epoch the folder is a model that `load` reads, with the weights of the epoch best on ``dev``, and
    ``log.jsonl`` has a line for each. Raises ``ValueError`` if another process is at work in the folder, or if no
    entity of ``data`` lies on the tokens, and ``OSError`` if the disk is full.
    """
    folder = Path(folder)
    windows, report = align_for(model.config, data, tokenizer)
    dev_windows, dev_report = align_for(model.config, dev, tokenizer)
    say(f"train: {len(data)} texts, {report}")
    say(f"dev:   {len(dev)} texts, {dev_report}")
    if not report.kept:
        raise ValueError(f"data must hold an entity that lies on the tokens of a window, got {report}")
    true = [example.entities for example in dev]
    training = SpanTraining(model.to(device), config, -(-len(windows) // config.batch))
    with (
        alone(folder),  # makes it: what cannot be written is said now, not after an epoch
        torch.random.fork_rng(devices=[]),
    ):
        for name in (CONFIG, TOKENIZER, WEIGHTS, LOG):
            check_file_target(name, folder / name, ordinary=True)
        remove_partial(folder, LOG, CONFIG, TOKENIZER, WEIGHTS, f"{ENCODER}/{CONFIG}")
        tell = told("steps", 0) if progress else silent
        while not training.finished:
            start = time.perf_counter()
            for windows_of_step in shuffled(windows, config.batch, config.seed, training.epoch):
                loss = training.advance(windows_of_step)
                tell(training.step, training.steps, f"loss {loss:.3f}")
            mean: Any = training.mean.module
            threshold = config.threshold
            predictions = predict_windows(
                mean, dev_windows, len(dev), mode=config.mode, batch=config.batch, most=MOST,
                threshold=LEAST if threshold is None else threshold,
            )  # fmt: skip
            if threshold is None:
                threshold = best_threshold(true, predictions)
                predictions = [[span for span in spans if span.score > threshold] for spans in predictions]
            score = evaluate(true, predictions).overall
            if training.record(score, threshold, time.perf_counter() - start):
                save(folder, mean, tokenizer, {"train": config.to_dict(), "threshold": threshold})
            write_whole(folder / LOG, "".join(json.dumps(entry) + "\n" for entry in training.history).encode())
            say(line(training.history[-1], config.epochs))
    best = max(training.history, key=lambda entry: (entry["f1"], entry["epoch"]))
    seconds = sum(entry["seconds"] for entry in training.history)
    return TrainedSpans(folder, len(training.history), best["epoch"], Score(*best["counts"]), seconds)


class SpanTraining:
    """A model between two steps of its training, with optimizer, history and ``mean``, the running mean of its weights.

    ``step`` steps are done, ``per_epoch`` make an epoch. ``history`` has what is logged of every epoch.
    """

    def __init__(self, model: SpanModel, config: TrainConfig, per_epoch: int) -> None:
        self.model, self.config, self.per_epoch = model, config, per_epoch
        self.step, self.loss = 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.weights = list(model.parameters())
        self.mean = AveragedModel(model, multi_avg_fn=self._average)
        head_lr = HEAD_LR if model.config.encoder == "pretrained" else config.lr
        groups = [
            {"params": list(model.encoder.parameters()), "peak": config.lr},
            {"params": list(model.head.parameters()), "peak": head_lr},
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY, betas=BETAS, fused=True)

    @property
    def epoch(self) -> int:
        return self.step // self.per_epoch

    @property
    def steps(self) -> int:
        return self.config.epochs * self.per_epoch

    @property
    def best(self) -> float:
        """The best F1 on the development data so far."""
        return max((entry["f1"] for entry in self.history), default=0.0)

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
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(group["peak"], self.step, self.steps)
        batch = collate(windows).to(self.weights[0].device)
        loss = self.model.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.mean.update_parameters(self.model)
        value = float(loss.detach())
        check_loss(value, self.step, lr=config.lr)
        self.step += 1
        self.loss += value
        return value

    def record(self, score: Score, threshold: float, seconds: float) -> bool:
        """An epoch is over with this score on the development data. Returns whether none before was better."""
        best = score.f1 >= self.best
        self.history.append(
            {
                "epoch": self.epoch, "step": self.step, "loss": self.loss / self.per_epoch,
                "f1": score.f1, "precision": score.precision, "recall": score.recall,
                "threshold": threshold, "counts": [score.correct, score.predicted, score.gold],
                "seconds": round(seconds, 1),
            }
        )  # fmt: skip
        self.loss = 0.0
        return best

    def _average(self, mean: Any, weights: Any, steps: Any) -> None:
        """Early on the mean must not remember the random start."""
        torch._foreach_lerp_(mean, weights, 1 - min(self.config.average, (1 + int(steps)) / (10 + int(steps))))


def shuffled(windows: Sequence[Encoded], batch: int, seed: int, epoch: int) -> list[list[Encoded]]:
    """All windows once, in a random order of batches of about equal length: a function of (seed, epoch) alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(windows), generator=generator).tolist()
    batches = []
    for first in range(0, len(order), POOL * batch):
        pool = sorted((windows[i] for i in order[first : first + POOL * batch]), key=lambda window: len(window.ids))
        batches += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def line(entry: dict[str, Any], epochs: int) -> str:
    """What a person reads of an epoch."""
    return (
        f"epoch {entry['epoch']:>3}/{epochs}  loss {entry['loss']:.3f}  dev F1 {entry['f1']:.4f}  "
        f"P {entry['precision']:.4f}  R {entry['recall']:.4f}  {entry['seconds']:.0f} s"
    )
