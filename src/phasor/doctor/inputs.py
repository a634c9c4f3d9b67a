"""What a model is tried on: the caller's inputs, checked, or token ids made up."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .running import Running
from .subject import NotChecked

ROWS, LENGTH, FEWEST = 2, 24, 8
LARGEST_ID = 1000  # of made-up ids: special tokens mostly stand at the ends of a vocabulary


@dataclass(frozen=True)
class Inputs:
    """``tokens [B, S]`` for the laws, and the ``arguments`` of the call in which attentions are watched."""

    tokens: Tensor
    arguments: dict[str, Any] = field(default_factory=dict)

    def run(self, subject: Running) -> str:
        """Run the call that is watched; why it cannot be run, where it cannot."""
        try:
            if self.arguments:
                subject.model(**self.arguments)
            else:
                subject.run(self.tokens[:1], None)
        except Exception as error:
            if self.arguments:
                told = (str(error).splitlines() or [""])[0]
                raise ValueError(
                    f"inputs must be what the model takes; it raises {type(error).__name__}: {told}"
                ) from error
            return str(error) if isinstance(error, NotChecked) else f"{type(error).__name__}: {error!s:.120}"
        return ""


def of_model(model: nn.Module, inputs: Any) -> Inputs:
    device = next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
    config: Any = model.config
    text = config.get_text_config()
    words = getattr(text, "vocab_size", None) or LARGEST_ID
    if hasattr(inputs, "keys"):
        return Inputs(made_up(words, device), {k: v for k, v in inputs.items()})
    if inputs is None:
        return Inputs(made_up(words, device))
    ids = _checked(inputs)
    if int(ids.min()) < 0 or int(ids.max()) >= words:
        raise ValueError(f"inputs must be token ids from 0 to {words - 1}, got {int(ids.min())} to {int(ids.max())}")
    return Inputs(ids.to(device))


def of_black_box(inputs: Any) -> Tensor:
    return made_up(32, torch.device("cpu")) if inputs is None else _checked(inputs)


def made_up(words: int, device: torch.device) -> Tensor:
    made = torch.Generator("cpu").manual_seed(0)
    low, high = (3, min(words, LARGEST_ID)) if words > 8 else (0, words)
    return torch.randint(low, high, (ROWS, LENGTH), generator=made, device="cpu").to(device)


def _checked(inputs: Any) -> Tensor:
    kind = isinstance(inputs, Tensor) and inputs.ndim == 2 and not inputs.is_floating_point()
    if not kind or inputs.shape[1] < FEWEST or inputs.shape[0] < 1:
        got = list(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        rule = f"token ids [batch, seq] of at least {FEWEST} tokens, or a dictionary of keyword arguments"
        raise ValueError(f"inputs must be {rule}, got {got}")
    return inputs if len(inputs) > 1 else torch.cat((inputs, inputs.flip(1)))
