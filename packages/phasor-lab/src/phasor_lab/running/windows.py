"""What a running model is given: the config of its folder, and windows of a text; and their loss."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from phasor import read_config
from phasor.tools.checkpoints.opening import read_json


class ShortText(ValueError):
    """A text has too few tokens. Who knows the file says which one it is."""


def read_folder(folder: Path) -> dict[str, Any]:
    """The config of a folder. Raises ``ValueError``, with the file's name, where its rotation cannot be read."""
    config = read_json(folder / "config.json")
    read_config(folder)
    return config


def windows_of(name: str, tokens: Tensor, length: int, most: int) -> Tensor:
    """``[n, length + 1]``, spread over the tokens."""
    if not isinstance(tokens, Tensor) or tokens.ndim != 1:
        raise ValueError(f"{name} must be tokens [n], got {type(tokens).__name__}")
    count = min(most, (len(tokens) - 1) // length)
    if count < 2:
        raise ShortText(
            f"{name} must have at least {2 * length + 1} tokens, two windows of {length}, got {len(tokens)}"
        )
    starts = (torch.arange(count) * ((len(tokens) - length - 1) / max(1, count - 1))).long()
    return tokens[starts[:, None] + torch.arange(length + 1)]


def next_token_loss(logits: Tensor, windows: Tensor, reduction: str = "none") -> Tensor:
    """Nats of the last tokens of windows ``[n, L + 1]``, ``[n, s]``, from the ``logits`` ``[n, s, V]`` before each; or
    their ``"sum"`` or ``"mean"``."""
    last = windows[:, -logits.shape[1] :]
    loss = F.cross_entropy(logits.flatten(0, 1), last.flatten(), reduction=reduction)
    return loss.view_as(last) if reduction == "none" else loss
