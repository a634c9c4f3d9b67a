"""A transformers model whose rotary tables are given from outside, for as long as a block takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...models.configs import read_config
from ...rotary.spec import RotarySpec
from ...support.processes import Group
from ..checkpoints.opening import read_json

ALONE = Group()
AT_ONCE = 4096  # tokens of one forward pass


class GivenTables:
    """A model, its one rotation, and the module that forms its cos and sin; over the processes of ``group``.

    Raises ``ValueError`` for a model with several rotations, none, or one that does not keep its frequencies in a
    buffer ``inv_freq``, as transformers' modules do.
    """

    def __init__(self, model: nn.Module, group: Group = ALONE) -> None:
        if not hasattr(model, "config"):
            raise ValueError(f"model must be a transformers model with a config, got {type(model).__name__}")
        self.model, self.group, self.rotary = model, group, read_config(model.config)
        specs = list(self.rotary.distinct)
        modules = [m for m in model.modules() if isinstance(getattr(m, "inv_freq", None), Tensor)]
        if len(specs) != 1 or len(modules) != 1:
            raise ValueError(
                f"model must have one rotation for all its layers to be fitted, got {len(specs)}, formed by "
                f"{len(modules)} modules with inv_freq"
            )
        self.spec: RotarySpec = specs[0]
        self.module: Any = modules[0]
        if self.spec.learned or self.spec.frequencies is not None:
            raise ValueError(
                "model must have frequencies that follow from a base; those of this one are trained or listed"
            )
        if self.module.inv_freq.shape != (self.spec.pairs,):
            raise ValueError(
                f"model must keep one frequency for each of {self.spec.pairs} pairs, got {self.module.inv_freq.shape}"
            )
        self.plain = self.spec.replace(scaling=None).inv_freq()

    @contextmanager
    def given(self, frequencies: Tensor, attention: float = 1.0) -> Iterator[None]:
        """The model with these frequencies, ``[pairs]``, and this factor on cos and sin; then as it was."""
        module, kept = self.module, self.module.inv_freq
        factor, update = module.attention_scaling, module.__dict__.get("rope_type")
        module.inv_freq = frequencies.to(kept)
        module.attention_scaling, module.rope_type = attention, "default"  # nothing depends on a length meanwhile
        try:
            yield
        finally:
            module.inv_freq, module.attention_scaling = kept, factor
            if update is None:
                del module.rope_type
            else:
                module.rope_type = update

    @torch.no_grad()
    def loss(self, windows: Tensor) -> float:
        """Nats per token of windows ``[n, L + 1]``. Raises ``ValueError`` where it is no number.

        Each process has its share of the batches. Their sums are added in the order of the batches, so the number of
        processes does not change a bit.
        """
        batches = windows.split(max(1, AT_ONCE // windows.shape[1]))
        sums = torch.zeros(len(batches), dtype=torch.float64)
        for i in range(self.group.rank, len(batches), self.group.size):
            logits = self.model(batches[i][:, :-1], use_cache=False).logits.float()
            sums[i] = F.cross_entropy(logits.flatten(0, 1), batches[i][:, 1:].flatten(), reduction="sum")
        loss = sum(self.group.total(sums).tolist()) / windows[:, 1:].numel()
        if not loss < float("inf"):
            raise ValueError(f"the loss of the model must be a number, got {loss} at {windows.shape[1] - 1} tokens")
        return loss


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
        raise ValueError(
            f"{name} must have at least {2 * length + 1} tokens, two windows of {length}, got {len(tokens)}"
        )
    starts = (torch.arange(count) * ((len(tokens) - length - 1) / max(1, count - 1))).long()
    return tokens[starts[:, None] + torch.arange(length + 1)]
