"""A transformers model whose rotary tables are given from outside, for as long as a block takes."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
BACK_AT_ONCE = 1024  # of one forward and backward pass


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
        """The model with these frequencies, ``[pairs]``, and this factor on cos and sin; then as it was.

        Gradients pass to frequencies that require them: the module's code is run without the decorators around it.
        """
        module, kept, factor = self.module, self.module.inv_freq, self.module.attention_scaling
        own = {name: vars(module)[name] for name in ("forward", "rope_type") if name in vars(module)}
        if frequencies.requires_grad:
            module.forward = partial(inspect.unwrap(type(module).forward), module)
        module.inv_freq = frequencies.to(kept)
        module.attention_scaling, module.rope_type = attention, "default"  # nothing depends on a length meanwhile
        try:
            yield
        finally:
            module.inv_freq, module.attention_scaling = kept, factor
            for name in ("forward", "rope_type"):
                vars(module).pop(name, None)
            vars(module).update(own)

    @torch.no_grad()
    def loss(self, windows: Tensor) -> float:
        """Nats per token of windows ``[n, L + 1]``. Raises ``ValueError`` where it is no number.

        Each process has its share of the batches. Their sums are added in the order of the batches, so the number of
        processes does not change a bit.
        """
        batches = windows.split(max(1, AT_ONCE // windows.shape[1]))
        sums = torch.zeros(len(batches), dtype=torch.float64)
        for i in range(self.group.rank, len(batches), self.group.size):
            sums[i] = self._sum(batches[i])
        return _number(sum(self.group.total(sums).tolist()) / windows[:, 1:].numel(), windows)

    def gradient(self, windows: Tensor, logarithms: Tensor, attention: float = 1.0) -> Tensor:
        """``[1 + pairs]``: nats per token of windows ``[n, L + 1]``, and its derivative by the logarithm of each
        divisor, at these ``logarithms`` of them ``[pairs]``; float64, shared among processes as `loss` is.

        Raises ``ValueError`` where the loss is no number, and for a model through which no gradient passes.
        """
        batches = windows.split(max(1, BACK_AT_ONCE // windows.shape[1]))
        sums = torch.zeros(len(batches), 1 + len(logarithms), dtype=torch.float64)
        for i in range(self.group.rank, len(batches), self.group.size):
            leaf = logarithms.detach().clone().requires_grad_()
            with torch.enable_grad(), self.given(self.plain * torch.exp(-leaf), attention):
                loss = self._sum(batches[i])
                slope = torch.autograd.grad(loss, leaf, allow_unused=True)[0] if loss.requires_grad else None
                if slope is None:
                    raise ValueError(
                        "model must pass gradients to the frequencies of its rotation, and "
                        f"{type(self.module).__name__} does not"
                    )
            sums[i, 0], sums[i, 1:] = loss.detach(), slope
        total = sum(self.group.total(sums).unbind(), torch.zeros(1 + len(logarithms), dtype=torch.float64))
        total = total / windows[:, 1:].numel()
        _number(float(total.sum()), windows)
        return total

    def _sum(self, windows: Tensor) -> Tensor:
        logits = self.model(windows[:, :-1], use_cache=False).logits.float()
        return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum")


def _number(loss: float, windows: Tensor) -> float:
    if not abs(loss) < float("inf"):
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
