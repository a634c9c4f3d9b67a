"""Training: batches are a function of (seed, step), so a run that was killed goes on as if nothing had happened."""

import hashlib
import json
import math
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...support.checks import whole
from ...support.lock import alone
from ...support.processes import Group, process_group
from ...support.whole_files import remove_partial, write_whole
from ..run_folder import checkpoint
from ..run_folder.files import read_json, write_json
from ..run_folder.tensors import filled
from ..run_folder.training import adamw, check_loss, progress_bar
from .data import Text
from .model import Decoder
from .run import RunConfig, check_text
from .tasks import IGNORE, task_batch

CHECKPOINT, METRICS, RUN = checkpoint.FILE, "metrics.jsonl", "run.json"
MODEL = checkpoint.MODEL
STATE = {"run": dict, "step": int, "log": str}


@dataclass(frozen=True)
class Trained:
    """A finished run: its folder, the loss of its last step in nats per scored token, and its speed here."""

    folder: Path
    config: RunConfig
    resumed_at: int
    loss: float
    tokens_per_second: float


def train(
    config: RunConfig,
    folder: str | Path,
    text: Text | None = None,
    *,
    checkpoint_every: int = 100,
    about: dict[str, Any] | None = None,
    progress: bool = False,
) -> Trained:
    """Train in ``folder``, or go on from its checkpoint: the final weights are the same to the bit.

    Writes ``checkpoint.safetensors`` (weights, optimizer, step) every ``checkpoint_every`` steps, ``metrics.jsonl``
    (one line a step) and ``run.json`` (the config and ``about``; of a finished run only where it is damaged). Under
    torchrun every process takes its share of each batch, and the losses are those of one process to float rounding.

    Raises ``ValueError`` if the folder holds a run with another config, naming what differs, if what it holds is
    damaged, or if another process is at work in it, and ``OSError`` if the disk is full; the last checkpoint stays.
    """
    folder = Path(folder)
    check_text(config, text)
    whole("checkpoint_every", checkpoint_every)
    with process_group() as group, alone(folder) if group.first else nullcontext():
        if config.batch % group.size:
            raise ValueError(f"batch must be a multiple of the {group.size} processes, got {config.batch}")
        training = DecoderTraining(config, text, group)
        first, past = training.resume(folder / CHECKPOINT)
        group.barrier()  # nobody writes before everybody has read
        speed, start = 0.0, time.perf_counter()
        with (
            Log(folder / METRICS, first, past, group.first) as log,
            progress_bar(config.name, first, config.steps, progress and group.first) as advance,
        ):
            if group.first and (first < config.steps or not _has_config(folder / RUN, config)):
                remove_partial(folder, CHECKPOINT, METRICS, RUN)
                write_json(folder / RUN, {"run": config.to_dict(), "about": about or {}})
            for step in range(first, config.steps):
                loss = training.step(step)
                speed = (step + 1 - first) * config.batch * config.model.length / (time.perf_counter() - start)
                advance(loss, f"{speed:,.0f} tokens/s")
                log.add(step, loss, speed)
                if group.first and ((step + 1) % checkpoint_every == 0 or step + 1 == config.steps):
                    log.sync()
                    state = {"run": config.to_dict(), "step": step + 1, "log": log.sha256}
                    checkpoint.save(folder / CHECKPOINT, training.tensors, state)
        return Trained(folder, config, first, log.last_loss, speed)


def _has_config(path: Path, config: RunConfig) -> bool:
    """Whether the file is there, whole and of this run."""
    try:
        return bool(read_json(path, {"run": dict, "about": dict})["run"] == config.to_dict())
    except (ValueError, OSError):
        return False


class DecoderTraining:
    """The model and its optimizer between two steps."""

    def __init__(self, config: RunConfig, text: Text | None, group: Group) -> None:
        self.config, self.text, self.group = config, text, group
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.model = Decoder(config.model)
        self.optimizer = adamw(
            self.model.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )
        self.tensors = checkpoint.tensors_of(self.model, self.optimizer)

    def step(self, step: int) -> float:
        """One update. Returns the mean loss over the scored tokens of the whole batch."""
        config, group = self.config, self.group
        tokens, targets = batch(config, self.text, step)
        scored = int((targets != IGNORE).sum())
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = learning_rate(config, step)
        logits = self.model(group.share(tokens))
        # Gradients are summed over processes, so each divides the sum of its rows by all scored tokens.
        loss = summed_loss(logits, group.share(targets)) / scored
        loss.backward()
        group.total_gradients(self.model.parameters())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        value = float(group.total(loss.detach()))
        check_loss(value, config.lr, step)
        return value

    def resume(self, path: Path) -> tuple[int, str | None]:
        """The step to go on with and the SHA-256 of the log until then; 0 and None if there is no checkpoint."""
        if not checkpoint.is_there(path):
            return 0, None
        tensors, state = checkpoint.load(path, STATE)
        checkpoint.check_same(path, self.config.flat(), _run_of(path, state).flat())
        checkpoint.fill(path, self.tensors, tensors)
        return state["step"], state["log"]


class Log:
    """Lines of ``path`` from step ``first`` on; what a killed run wrote beyond its checkpoint is cut off.

    ``sha256`` is that of all steps and losses so far, for the checkpoint: a log with another past is refused. Processes
    that do not write (``writes=False``) keep quiet. Raises ``OSError`` naming the file if the disk is full.
    """

    def __init__(self, path: Path, first: int, past: str | None, writes: bool) -> None:
        self.path = path
        lines = path.read_bytes().splitlines(keepends=True)[:first] if path.exists() else []
        self.last_loss, self._sha256 = math.nan, hashlib.sha256()
        try:
            for line in lines:
                entry = json.loads(line)
                self._count(entry["step"], entry["loss"])
            if past is not None and past != self.sha256:
                raise ValueError("another log")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(
                f"{path} must hold the {first} steps before the checkpoint as they were written, got another log; "
                "put it back, or delete the checkpoint to start over"
            ) from None
        self._file = None
        if writes:
            write_whole(path, b"".join(lines))
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def _count(self, step: int, loss: float) -> None:
        self.last_loss = loss
        self._sha256.update(json.dumps([step, loss]).encode())

    def add(self, step: int, loss: float, tokens_per_second: float) -> None:
        self._count(step, loss)
        if self._file is not None:
            line = {"step": step, "loss": loss, "tokens_per_second": round(tokens_per_second)}
            try:
                self._file.write((json.dumps(line) + "\n").encode())
            except OSError as error:
                reason = f"cannot write ({error.strerror}); the last checkpoint is untouched"
                raise OSError(error.errno, reason, str(self.path)) from error

    def sync(self) -> None:
        """All lines are on the disk: to be called before a checkpoint that counts on them."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def _run_of(path: Path, state: dict[str, Any]) -> RunConfig:
    try:
        config = RunConfig.from_dict(state["run"])
        if not 0 < state["step"] <= config.steps:
            raise ValueError(f"step {state['step']} of {config.steps}")
    except ValueError as error:
        raise checkpoint.fault(path, error) from None
    return config


def batch(config: RunConfig, text: Text | None, step: int) -> tuple[Tensor, Tensor]:
    """The global batch of a step."""
    if text is not None and config.task == "text":
        return text.batch(config.seed, step, config.batch, config.model.length)
    return task_batch(config.task, config.seed, step, config.batch, config.model.length)


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")


def learning_rate(config: RunConfig, step: int) -> float:
    """Linear warmup, then a cosine down to a tenth.

    >>> from .model import ModelConfig
    >>> config = RunConfig(model=ModelConfig(length=1), batch=1, tokens=100, lr=1.0, warmup=0.1)
    >>> learning_rate(config, 0), learning_rate(config, 9), round(learning_rate(config, 99), 3)
    (0.1, 1.0, 0.1)
    """
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return config.lr * (step + 1) / warm
    done = (step + 1 - warm) / max(1, config.steps - warm)
    return config.lr * (0.55 + 0.45 * math.cos(math.pi * done))


def load_model(folder: str | Path) -> tuple[Decoder, RunConfig]:
    """The model of a finished run, ready to be evaluated.

    Raises ``ValueError`` if there is no checkpoint, if it is damaged, or if the run is not finished.
    """
    path = Path(folder) / CHECKPOINT
    if not path.is_file():
        raise ValueError(f"run must be a folder with {CHECKPOINT}, as `phasor lab train` makes it, got {str(folder)!r}")
    tensors, state = checkpoint.load(path, STATE)
    config = _run_of(path, state)
    if state["step"] < config.steps:
        raise ValueError(
            f"run must be finished, got {str(folder)!r} at step {state['step']} of {config.steps}; "
            "repeat its `phasor lab train` command to go on"
        )
    weights = {name.removeprefix(MODEL): t for name, t in tensors.items() if name.startswith(MODEL)}
    try:
        return filled(lambda: Decoder(config.model), weights).eval(), config
    except ValueError as error:
        raise checkpoint.fault(path, error) from None
