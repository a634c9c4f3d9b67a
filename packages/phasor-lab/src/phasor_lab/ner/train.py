"""Training: batches and dropout are functions of (seed, step), so a killed run goes on as if nothing had happened."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phasor.cli.progress import progress as told
from phasor.cli.progress import silent
from phasor.support.checks import whole
from phasor.support.lock import alone
from phasor.support.whole_files import check_file_target, remove_partial, write_whole

from ..run_folder import checkpoint
from ..run_folder.training import adamw, check_loss
from .card import CARD, model_card
from .config import TrainConfig
from .data import Example
from .data.windows import Encoded
from .metrics import Score, best_threshold, evaluate
from .model import CONFIG, ENCODER, TOKENIZER, WEIGHTS, SpanModel, check_folder, collate, save
from .predict import align_for, predict_windows

CHECKPOINT, LOG = checkpoint.FILE, "log.jsonl"
MOST = 8  # spans per token: no text has as many entities
BETAS = (0.9, 0.99)  # a run has a few thousand steps: the usual 0.999 would remember most of them
LEAST = 0.002  # the lowest probability that is looked at for the best threshold
MEASURED = 20  # steps from which the speed is told
POOL = 50  # batches sorted by length together: less padding, still another mixture every epoch
HEAD_LR = 1e-3  # on a pretrained encoder
NUMBER = (int, float)
EPOCH = {
    "epoch": int, "step": int, "loss": NUMBER, "f1": NUMBER, "precision": NUMBER, "recall": NUMBER,
    "threshold": NUMBER, "counts": [int], "seconds": NUMBER,
}  # fmt: skip
STATE = {
    "run": {"model": dict, "train": dict, "data": dict},
    "step": int,
    "epochs": int,
    "loss": NUMBER,
    "history": [EPOCH],
}


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
    checkpoint_every: int = 500,
    say: Callable[[str], None] = lambda line: None,
    progress: bool = False,
) -> TrainedSpans:
    """Train ``model`` in ``folder``, or go on from its checkpoint: the weights it ends with are the same to the bit.

    After the first epoch the folder is a model that `load` reads, with the weights of the epoch best on ``dev``. Beside
    it are ``card.md`` (what the model knows, by label, length and novelty),
    ``log.jsonl`` (a line an epoch) and ``checkpoint.safetensors``, written every ``checkpoint_every`` steps and
    every epoch.

    Raises ``ValueError`` if the folder holds a run with other settings or data, a damaged checkpoint or a damaged model
    (of a run that goes on or is finished), if another process is at work in it, or if no entity of ``data`` lies on the
    tokens, and ``OSError`` if the disk is full.
    """
    folder = Path(folder)
    whole("checkpoint_every", checkpoint_every)
    windows, report = align_for(model.config, data, tokenizer)
    dev_windows, dev_report = align_for(model.config, dev, tokenizer)
    say(f"train: {len(data)} texts, {report}")
    say(f"dev:   {len(dev)} texts, {dev_report}")
    if not report.kept:
        raise ValueError(f"data must hold an entity that lies on the tokens of a window, got {report}")
    true = [example.entities for example in dev]
    digests = {"train": digest(data), "dev": digest(dev)}
    run = json.loads(json.dumps({"model": model.config.to_dict(), "train": config.to_dict(), "data": digests}))
    training = SpanTraining(model.to(device), config, -(-len(windows) // config.batch))
    with (
        alone(folder),  # makes it: what cannot be written is said now, not after an epoch
        torch.random.fork_rng(devices=[]),
    ):
        training.resume(folder / CHECKPOINT, run)
        if training.history:  # its best epoch lies in these files alone
            check_folder(folder, f"put back what was there, or delete {CHECKPOINT} to train again from the start")
        write_log(folder / LOG, training.history)  # what cannot be written is said now, and what was damaged is whole
        for name in () if training.finished else (CONFIG, TOKENIZER, WEIGHTS, CARD):
            check_file_target(name, folder / name, ordinary=True)
        remove_partial(folder, CHECKPOINT, LOG, CONFIG, TOKENIZER, WEIGHTS, CARD, f"{ENCODER}/{CONFIG}")
        tell = told("steps", training.step) if progress else silent
        while not training.finished:
            start = time.perf_counter()
            batches = shuffled(windows, config.batch, config.seed, training.epoch)
            for batch in batches[training.step % training.per_epoch :]:
                loss = training.advance(batch)
                if config.minutes is not None and training.step == training.measured:
                    training.fit(config.minutes, time.perf_counter() - start, len(dev_windows) / len(windows))
                    say(f"{config.minutes:g} minutes: {training.epochs} epochs by the speed of the first steps")
                tell(training.step, training.steps, f"loss {loss:.3f}  best dev F1 {training.best:.4f}")
                if training.step % checkpoint_every == 0 and training.step % training.per_epoch:
                    training.save(folder / CHECKPOINT, run)
            with training.averaged():
                predictions = predict_windows(
                    model, dev_windows, len(dev), mode=config.mode, batch=config.batch, most=MOST,
                    threshold=LEAST if config.threshold is None else config.threshold,
                )  # fmt: skip
                threshold = config.threshold
                if threshold is None:
                    threshold = best_threshold(true, predictions)
                    predictions = [[span for span in spans if span.score > threshold] for spans in predictions]
                scores = evaluate(true, predictions)
                if training.record(scores.overall, threshold, time.perf_counter() - start):
                    save(folder, model, tokenizer, run | {"threshold": threshold})
                    card = model_card(model.config, training.history[-1], data, dev, predictions, run)
                    write_whole(folder / CARD, card.encode())
            write_log(folder / LOG, training.history)
            # last: a run that is killed before it does the epoch again, to the same end
            training.save(folder / CHECKPOINT, run)
            say(line(training.history[-1], training.epochs))
    best = max(training.history, key=lambda entry: (entry["f1"], entry["epoch"]))
    seconds = sum(entry["seconds"] for entry in training.history)
    return TrainedSpans(folder, len(training.history), best["epoch"], Score(*best["counts"]), seconds)


class SpanTraining:
    """A model between two steps of its training, with optimizer, running mean of the weights and history.

    ``step`` steps are done, ``per_epoch`` make an epoch. ``history`` has what is logged of every epoch.
    """

    def __init__(self, model: SpanModel, config: TrainConfig, per_epoch: int) -> None:
        self.model, self.config, self.per_epoch = model, config, per_epoch
        self.epochs = config.epochs
        self.measured = min(MEASURED, per_epoch)
        self.step, self.loss = 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.mean = [p.detach().clone() for p in self.weights]
        groups = [
            {"params": [p for p in model.encoder.parameters() if p.requires_grad], "peak": config.lr},
            {"params": list(model.head.parameters()), "peak": head_lr(model, config)},
        ]
        self.optimizer = adamw(groups, weight_decay=config.weight_decay, betas=BETAS)
        self.tensors = checkpoint.tensors_of(model, self.optimizer, self.mean)

    @property
    def epoch(self) -> int:
        return self.step // self.per_epoch

    @property
    def steps(self) -> int:
        return self.epochs * self.per_epoch

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
        return len(scores) == self.epochs or bool(patience and waited >= patience and max(scores) > 0)

    def advance(self, windows: Sequence[Encoded]) -> float:
        """One update; returns the loss."""
        config = self.config
        torch.manual_seed(config.seed * 1_000_003 + self.step)  # dropout is a function of (seed, step)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(group["peak"], config.warmup, self.step, self.steps)
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
        check_loss(
            value, self.step, lr=config.lr, head_lr=head_lr(self.model, config), weight_decay=config.weight_decay
        )
        self.step += 1
        self.loss += value
        return value

    def fit(self, minutes: float, seconds: float, dev_share: float) -> None:
        """As many epochs as fit into ``minutes``, where the first `measured` steps took ``seconds``.

        A sentence of the development data takes half the time of one that is learnt from. Raises ``ValueError`` if not
        one epoch fits.
        """
        epoch = seconds / self.measured * self.per_epoch * (1 + dev_share / 2)
        if epoch > 60 * minutes:
            raise ValueError(
                f"minutes must suffice for one epoch, which takes about {epoch / 60:.2g} here, got {minutes:g}; give "
                "more, or take fewer sentences or a smaller model"
            )
        self.epochs = min(self.epochs, int(60 * minutes / epoch))

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

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model has the running mean of its weights inside the block, and its own again after it."""
        if not self.config.average:
            yield
            return
        weights = [p.detach().clone() for p in self.weights]
        self._set(self.mean)
        try:
            yield
        finally:
            self._set(weights)

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.copy_(value)

    def save(self, path: Path, run: dict[str, Any]) -> None:
        about = {"run": run, "step": self.step, "epochs": self.epochs, "loss": self.loss, "history": self.history}
        checkpoint.save(path, self.tensors, about)

    def resume(self, path: Path, run: dict[str, Any]) -> None:
        """Go on from ``path``, if it exists. Raises ``ValueError`` if it is of another run, naming what differs."""
        if not checkpoint.is_there(path):
            return
        tensors, state = checkpoint.load(path, STATE)
        checkpoint.check_same(path, _flat(run), _flat(state["run"]))
        step, history = state["step"], state["history"]
        epochs = [(entry["epoch"], entry["step"], len(entry["counts"])) for entry in history]
        expected = [(i, i * self.per_epoch, 3) for i in range(1, len(history) + 1)]  # a damaged step may be any number
        if not 0 < state["epochs"] <= self.config.epochs:
            raise checkpoint.fault(path, f"{state['epochs']} epochs of at most {self.config.epochs}")
        self.epochs = state["epochs"]
        if not 0 < step <= self.steps or len(history) != step // self.per_epoch or epochs != expected:
            raise checkpoint.fault(path, f"step {step} of {self.steps} and a history of {len(history)} epochs")
        checkpoint.fill(path, self.tensors, tensors)
        self.step, self.loss, self.history = step, state["loss"], history


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """``{"seed": 0, ..., "data.dev": "…"}``, so that an error can name what differs."""
    return run["model"] | run["train"] | {f"data.{name}": sha256 for name, sha256 in run["data"].items()}


def shuffled(windows: Sequence[Encoded], batch: int, seed: int, epoch: int) -> list[list[Encoded]]:
    """All windows once, in a random order of batches of about equal length: a function of (seed, epoch) alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(windows), generator=generator).tolist()
    batches = []
    for first in range(0, len(order), POOL * batch):
        pool = sorted((windows[i] for i in order[first : first + POOL * batch]), key=lambda window: len(window.ids))
        batches += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


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


def line(entry: dict[str, Any], epochs: int) -> str:
    """What a person reads of an epoch."""
    return (
        f"epoch {entry['epoch']:>3}/{epochs}  loss {entry['loss']:.3f}  dev F1 {entry['f1']:.4f}  "
        f"P {entry['precision']:.4f}  R {entry['recall']:.4f}  {entry['seconds']:.0f} s"
    )


def write_log(path: Path, history: Sequence[dict[str, Any]]) -> None:
    write_whole(path, "".join(json.dumps(entry) + "\n" for entry in history).encode())


def digest(examples: Sequence[Example]) -> str:
    """SHA-256 of the texts and their entities: a run is not gone on with on other data."""
    lines = (repr((example.text, [(e.start, e.end, e.label) for e in example.entities])) for example in examples)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
