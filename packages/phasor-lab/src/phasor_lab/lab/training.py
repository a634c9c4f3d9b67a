"""A training between two steps: the model, its optimizer, and what a step does with them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..processes import Group
from ..run_folder.tensors import damaged, fill, read_tensors, tensors_of, write_tensors
from ..run_folder.training import WEIGHT_DECAY, adamw, check_loss, learning_rate
from .data import Text
from .model import Decoder
from .run import RunConfig

CHECKPOINT, MODEL = "checkpoint.safetensors", "model."
WHAT, WAY_OUT = "a checkpoint of this training", "delete it to start over"
LEAST = 0.1  # of the learning rate, at the end
PATTERN = {
    "run": dict,
    "losses": [(int, float)],
    "about": {"command?": str, "text?": str, "paths?": [str]},
}


class State(NamedTuple):
    """What a checkpoint says beside its tensors: the run, a loss for each step that is done, what was said of it."""

    config: RunConfig
    losses: list[float]
    about: dict[str, Any]


class DecoderTraining:
    """The model and its optimizer between two steps."""

    def __init__(self, config: RunConfig, text: Text, group: Group, about: Mapping[str, Any] | None = None) -> None:
        self.config, self.text, self.group, self.about = config, text, group, dict(about or {})
        self.losses: list[float] = []
        self.model = self.initial_model()
        self.optimizer = adamw(self.model.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
        self.tensors = {MODEL + name: tensor for name, tensor in tensors_of(self.model).items()}
        for i, weight in enumerate(self.model.parameters()):  # numbered as in one process
            self.tensors |= {f"optimizer.{i}.{name}": part for name, part in self.optimizer.state[weight].items()}

    def initial_model(self) -> Decoder:
        """The model as it is before the first step."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return Decoder(self.config.model)

    def step(self) -> float:
        """One update. Returns the mean loss over the tokens of the whole batch."""
        step = len(self.losses)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = learning_rate(self.config.lr, step, self.config.steps, LEAST)
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
        config = self.config
        tokens, targets = self.text.batch(config.seed, step, config.batch, config.model.length)
        logits = self.model(group.share(tokens))
        # Gradients are summed over processes, so each divides the sum of its rows by all tokens.
        rows = group.share(targets)
        loss = F.cross_entropy(logits.flatten(0, 1), rows.flatten(), reduction="sum") / targets.numel()
        self.backward(loss)
        return group.total(loss.detach())

    def backward(self, loss: Tensor) -> None:
        """The gradients, summed over all processes."""
        loss.backward()
        self.group.total_gradients(self.model.parameters())

    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if there is one. A link that leads nowhere is: it is refused."""
        if os.path.lexists(path):
            tensors, state = read_checkpoint(path)
            check_same(path, self.config.flat(), state.config.flat())
            with naming(path):
                self.fill(tensors)
            self.losses = state.losses

    def fill(self, saved: Mapping[str, Tensor]) -> None:
        fill(self.tensors, saved)

    def whole_tensors(self) -> Mapping[str, Tensor]:
        """What a checkpoint holds, whole on every process."""
        return self.tensors

    def save(self, folder: Path) -> None:
        """Write what `resume` reads, on any number of processes."""
        tensors = self.whole_tensors()
        if self.group.first:
            state = {"run": self.config.to_dict(), "losses": self.losses, "about": self.about}
            write_tensors(folder / CHECKPOINT, tensors, state)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], State]:
    """Its tensors, and what it says beside them. Raises ``ValueError`` if it is damaged."""
    tensors, state = read_tensors(path, WHAT, WAY_OUT, PATTERN)
    with naming(path):
        config = RunConfig.from_dict(state["run"])
        if not 0 < len(state["losses"]) <= config.steps:
            raise ValueError(f"step {len(state['losses'])} of {config.steps}")
    return tensors, State(config, state["losses"], state["about"])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A ``ValueError`` of this block says that the checkpoint cannot be gone on from."""
    try:
        yield
    except ValueError as error:
        raise damaged(path, WHAT, error, WAY_OUT) from None


def check_same(path: Path, ours: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if the settings of this run are not those that a checkpoint was saved with."""
    pairs = ((key, saved.get(key), ours.get(key)) for key in sorted(ours.keys() | saved.keys()))
    if differences := "; ".join(f"{key} {old!r}, now {new!r}" for key, old, new in pairs if old != new):
        raise ValueError(
            f"{path} must be of the same run, got one with {differences}; "
            "choose another folder, or delete it to start over"
        )
