"""Where a training stands: weights, the optimizer's moments and plain data, in one file that is whole or absent."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import tensors as one_file
from .files import conform

FILE = "checkpoint.safetensors"
WHAT, WAY_OUT = "a checkpoint of this training", "delete it to start over"
MODEL = "model."


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors of a training by name: to be saved, or to be filled."""
    tensors = {MODEL + name: tensor for name, tensor in one_file.tensors_of(model).items()}
    for i, moments in enumerate(optimizer.state.values()):
        tensors |= {f"optimizer.{i}.{name}": tensor for name, tensor in moments.items()}
    return tensors


def save(path: Path, tensors: Mapping[str, Tensor], about: dict[str, Any]) -> None:
    """Write what `load` reads. Raises ``OSError`` and leaves the last checkpoint as it was."""
    one_file.write_tensors(path, tensors, about)


def is_there(path: Path) -> bool:
    """Whether there is anything to go on from. A link that leads nowhere is: `load` refuses it."""
    return os.path.lexists(path)


def load(path: Path, pattern: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save` wrote, plain data like ``pattern``. Raises ``ValueError`` if it is damaged or something else."""
    tensors, about = one_file.read_tensors(path, WHAT, WAY_OUT)
    try:
        return tensors, conform(about, pattern)
    except ValueError as error:
        raise fault(path, error) from None


def fill(path: Path, tensors: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy the saved tensors into those of a training. Raises ``ValueError``, before any change, if they do not fit."""
    try:
        one_file.fill(tensors, saved)
    except ValueError as error:
        raise fault(path, error) from None


def check_same(path: Path, ours: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if the settings of this run are not those that a checkpoint was saved with."""
    pairs = ((key, saved.get(key), ours.get(key)) for key in sorted(ours.keys() | saved.keys()))
    if differences := "; ".join(f"{key} {old!r}, now {new!r}" for key, old, new in pairs if old != new):
        raise ValueError(
            f"{path} must be of the same run, got one with {differences}; "
            "choose another folder, or delete it to start over"
        )


def fault(path: Path, reason: object) -> ValueError:
    """The error for a checkpoint that cannot be gone on from."""
    return one_file.damaged(path, WHAT, reason, WAY_OUT)
