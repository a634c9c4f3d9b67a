"""A training between two steps: the model, its optimizer, and what a step does with them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..processes import Group
from ..run_folder import checkpoint, sharded
from ..run_folder.training import adamw, check_loss
from .data import Text
from .model import Decoder
from .run import RunConfig

CHECKPOINT = checkpoint.FILE
STATE = {"run": dict, "losses": [(int, float)]}  # a loss for each step that is done


class DecoderTraining:
    """The model and its optimizer between two steps."""

    def __init__(self, config: RunConfig, text: Text, group: Group) -> None:
        self.config, self.text, self.group = config, text, group
        self.losses: list[float] = []
        self.model = self.initial_model()
        self.optimizer = self.optimizer_of(
            list(self.model.parameters()), lr=config.lr, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )
        self.tensors = checkpoint.tensors_of(self.model, self.optimizer)

    def initial_model(self) -> Decoder:
        """The model as it is before the first step."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return Decoder(self.config.model)

    def optimizer_of(self, parameters: list[nn.Parameter], **options: Any) -> torch.optim.AdamW:
        return adamw(parameters, **options)

    def step(self) -> float:
        """One update. Returns the mean loss over the tokens of the whole batch."""
        step = len(self.losses)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = learning_rate(self.config, step)
        with torch.random.fork_rng(devices=[]):  # what CAPE draws is a function of seed and step, as the batch
            torch.manual_seed(self.config.seed * 2**32 + step)
            loss = self.gradients(step)
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        value = float(loss)
        check_loss(value, step, lr=self.config.lr)
        self.losses.append(value)
        return value

    def gradients(self, step: int) -> Tensor:
        """The loss of a step's whole batch, and its gradients in the weights."""
        group = self.group
        tokens, targets = self.batch(step)
        logits = self.model(group.share(tokens))
        # Gradients are summed over processes, so each divides the sum of its rows by all tokens.
        loss = summed_loss(logits, group.share(targets)) / targets.numel()
        loss.backward()
        group.total_gradients(self.model.parameters())
        return group.total(loss.detach())

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The global batch of a step."""
        return self.text.batch(self.config.seed, step, self.config.batch, self.config.model.length)

    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if there is one.

        Of one file and of shards the later one counts: a run may have gone on in the other way.
        """
        folder, later = path.parent, None
        if sharded.is_there(folder):
            later = sharded.about(folder, STATE)
            checkpoint.check_same(folder / sharded.FILE, self.config.flat(), run_of(path, later).flat())
        if checkpoint.is_there(path):
            tensors, state = checkpoint.load(path, STATE)
            checkpoint.check_same(path, self.config.flat(), run_of(path, state).flat())
            if later is None or len(state["losses"]) >= len(later["losses"]):
                self.fill(path, tensors)
                self.losses = state["losses"]
                return
        if later is not None:
            sharded.fill(folder, self.tensors)
            self.losses = later["losses"]

    def fill(self, path: Path, saved: Mapping[str, Tensor]) -> None:
        checkpoint.fill(path, self.tensors, saved)

    def state(self) -> dict[str, Any]:
        return {"run": self.config.to_dict(), "losses": self.losses}

    def save(self, folder: Path) -> None:
        """Write what `resume` reads."""
        if self.group.first:
            checkpoint.save(folder / CHECKPOINT, self.tensors, self.state())
            sharded.remove(folder)  # of an earlier step


def run_of(path: Path, state: dict[str, Any]) -> RunConfig:
    """The run that a checkpoint is of. Raises ``ValueError`` if it is damaged."""
    try:
        config = RunConfig.from_dict(state["run"])
        if not 0 < len(state["losses"]) <= config.steps:
            raise ValueError(f"step {len(state['losses'])} of {config.steps}")
    except ValueError as error:
        raise checkpoint.fault(path, error) from None
    return config


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


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
