"""The loss of a model as a function of the divisors of its frequencies, and its gradient."""

import torch
from torch import Tensor

from ..running.model import RunningModel, check_loss
from ..running.windows import next_token_loss

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

    def at(self, windows: Tensor, divisors: Tensor, attention: float) -> float:
        """Nats per token of windows ``[n, L + 1]``. Raises ``ValueError`` where it is no number."""
        with self.model.with_frequencies([self.plain / divisors], [attention]):
            return self.model.loss(windows)

    def gradient(self, windows: Tensor, logarithms: Tensor, attention: float) -> Tensor:
        """``[1 + pairs]``: nats per token of windows ``[n, L + 1]``, and its derivative by the logarithm of each
        divisor, at these ``logarithms`` of them ``[pairs]``; float64.

        Raises ``ValueError`` where the loss is no number, and for a model through which no gradient passes.
        """

        def slope(batch: Tensor) -> Tensor:
            leaf = logarithms.detach().clone().requires_grad_()
            with torch.enable_grad(), self.model.with_frequencies([self.plain * torch.exp(-leaf)], [attention]):
                loss = next_token_loss(self.model.logits(batch[:, :-1]), batch, "sum")
                by = torch.autograd.grad(loss, leaf, allow_unused=True)[0] if loss.requires_grad else None
            if by is None:
                raise ValueError(
                    "model must pass gradients to the frequencies of its rotation, and "
                    f"{type(self.model.module).__name__} does not"
                )
            return torch.cat([loss.detach().double().cpu()[None], by])

        batches = windows.split(max(1, BACK_AT_ONCE // windows.shape[1]))
        zero = torch.zeros(1 + len(logarithms), dtype=torch.float64)
        total = sum((slope(batch.to(self.model.device)) for batch in batches), zero) / windows[:, 1:].numel()
        check_loss(float(total.sum()), windows)
        return total
