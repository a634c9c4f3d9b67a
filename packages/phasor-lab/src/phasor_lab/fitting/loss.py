"""The loss of a model as a function of the divisors of its frequencies, and its gradient."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..running.model import AT_ONCE, RunningModel, check_loss

BACK_AT_ONCE = 1024  # tokens of one forward and backward pass


class DivisorLoss:
    """Of a running model whose layers share one rotation, ``spec``. Its frequencies without scaling, ``plain``
    ``[pairs]``, are divided, and cos and sin multiplied by an attention factor.

    Raises ``ValueError`` for a model with several rotations, and for listed frequencies.
    """

    def __init__(self, model: RunningModel) -> None:
        if len(model.rotations) != 1:
            raise ValueError(
                f"model must have one rotation for all its layers to be fitted, got {len(model.rotations)}"
            )
        self.model, self.spec = model, model.rotations[0].spec
        if self.spec.frequencies is not None:
            raise ValueError("model must have frequencies that follow from a base; those of this one are listed")
        self.plain = self.spec.replace(scaling=None).inv_freq()

    @torch.no_grad()
    def at(self, windows: Tensor, divisors: Tensor, attention: float) -> float:
        """Nats per token of windows ``[n, L + 1]``. Raises ``ValueError`` where it is no number."""
        with self.model.with_frequencies([self.plain / divisors], [attention]):
            sums = self._sums(windows, AT_ONCE, 1, lambda batch: self._sum(batch)[None])
        loss = sum(sums[:, 0].tolist()) / windows[:, 1:].numel()
        check_loss(loss, windows)
        return loss

    def gradient(self, windows: Tensor, logarithms: Tensor, attention: float) -> Tensor:
        """``[1 + pairs]``: nats per token of windows ``[n, L + 1]``, and its derivative by the logarithm of each
        divisor, at these ``logarithms`` of them ``[pairs]``; float64.

        Raises ``ValueError`` where the loss is no number, and for a model through which no gradient passes.
        """

        def slope(batch: Tensor) -> Tensor:
            leaf = logarithms.detach().clone().requires_grad_()
            with torch.enable_grad(), self.model.with_frequencies([self.plain * torch.exp(-leaf)], [attention]):
                loss = self._sum(batch)
                by = torch.autograd.grad(loss, leaf, allow_unused=True)[0] if loss.requires_grad else None
            if by is None:
                raise ValueError(
                    "model must pass gradients to the frequencies of its rotation, and "
                    f"{type(self.model.module).__name__} does not"
                )
            return torch.cat([loss.detach().double().cpu()[None], by])

        width = 1 + len(logarithms)
        sums = self._sums(windows, BACK_AT_ONCE, width, slope)
        total = sum(sums.unbind(), torch.zeros(width, dtype=torch.float64)) / windows[:, 1:].numel()
        check_loss(float(total.sum()), windows)
        return total

    def _sums(self, windows: Tensor, at_once: int, width: int, value: Callable[[Tensor], Tensor]) -> Tensor:
        """``[batches, width]`` in float64: the value of each batch.

        Each process has its share of the batches. Callers add the rows in their order, so the number of processes does
        not change a bit.
        """
        batches, group = windows.split(max(1, at_once // windows.shape[1])), self.model.group
        values = torch.zeros(len(batches), width, dtype=torch.float64)
        for i in range(group.rank, len(batches), group.size):
            values[i] = value(batches[i])
        return group.total(values)

    def _sum(self, windows: Tensor) -> Tensor:
        windows = windows.to(self.model.device)
        logits = self.model.logits(windows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum")
