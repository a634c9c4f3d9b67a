"""Training: batches and dropout are functions of (seed, step), so a killed run goes on as if nothing had happened."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...support.checks import whole
from ...support.lock import alone
from ...support.whole_files import remove_partial, write_whole
from ..run_folder import checkpoint
from ..run_folder.progress import Progress
from .batches import shuffled
from .config import TrainConfig
from .data import Example
from .data.align import align
from .metrics import Score, evaluate
from .model import CONFIG, ENCODER, TOKENIZER, WEIGHTS, SpanModel, save, sound_tensors
from .predict import predict_windows
from .session import Session

CHECKPOINT, LOG = checkpoint.FILE, "log.jsonl"
MOST = 8  # spans per token: no text has as many entities


@dataclass(frozen=True)
class Trained:
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
) -> Trained:
    """Train ``model`` in ``folder``, or go on from its checkpoint: the weights it ends with are the same to the bit.

    After the first epoch the folder is a model that `load` reads, with the weights of the epoch best on ``dev``. Beside
    it are ``log.jsonl`` (a line an epoch) and ``checkpoint.safetensors``, written every ``checkpoint_every`` steps and
    every epoch.

    Raises ``ValueError`` if the folder holds a run with other settings or data, a damaged checkpoint or a damaged model
    (of a run that goes on or is finished), if another process is at work in it, or if no entity of ``data`` lies on the
    tokens, and ``OSError`` if the disk is full.
    """
    folder = Path(folder)
    whole("checkpoint_every", checkpoint_every)
    shape = {"max_length": model.config.max_length, "stride": model.config.overlap}
    windows, report = align(data, tokenizer, model.config.labels, **shape)
    dev_windows, dev_report = align(dev, tokenizer, model.config.labels, **shape)
    say(f"train: {len(data)} texts, {report}")
    say(f"dev:   {len(dev)} texts, {dev_report}")
    if not report.kept:
        raise ValueError(f"data must hold an entity that lies on the tokens of a window, got {report}")
    run = {
        "model": model.config.to_dict(),
        "train": config.to_dict(),
        "data": {"train": digest(data), "dev": digest(dev)},
    }
    run = json.loads(json.dumps(run))
    session = Session(model.to(device), config, -(-len(windows) // config.batch))
    with (
        alone(folder),  # makes it: what cannot be written is said now, not after an epoch
        torch.random.fork_rng(devices=[]),
    ):
        session.resume(folder / CHECKPOINT, run)
        if session.history:  # its best epoch lies in these files alone
            sound_tensors(folder, f"put back what was there, or delete {CHECKPOINT} to train again from the start")
        write_log(folder / LOG, session.history)  # what cannot be written is said now, and what was damaged is whole
        remove_partial(folder, CHECKPOINT, LOG, CONFIG, TOKENIZER, WEIGHTS, f"{ENCODER}/{CONFIG}")
        with Progress("training", session.step, session.steps, progress) as bar:
            while not session.finished:
                started = time.perf_counter()
                batches = shuffled(windows, config.batch, config.seed, session.epoch)
                for batch in batches[session.step % session.per_epoch :]:
                    bar.advance(session.advance(batch))
                    if session.step % checkpoint_every == 0 and session.step % session.per_epoch:
                        session.save(folder / CHECKPOINT, run)
                with session.averaged():
                    found = predict_windows(
                        model,
                        dev_windows,
                        len(dev),
                        threshold=config.threshold,
                        mode=config.mode,
                        batch=config.batch,
                        most=MOST,
                    )
                    score = evaluate([example.entities for example in dev], found).overall
                    if session.record(score, time.perf_counter() - started):
                        save(folder, model, tokenizer, run)
                write_log(folder / LOG, session.history)
                # last: a run that is killed before it does the epoch again, to the same end
                session.save(folder / CHECKPOINT, run)
                say(line(session.history[-1], config.epochs))
    best = max(session.history, key=lambda entry: (entry["f1"], entry["epoch"]))
    seconds = sum(entry["seconds"] for entry in session.history)
    return Trained(folder, len(session.history), best["epoch"], Score(*best["counts"]), seconds)


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
