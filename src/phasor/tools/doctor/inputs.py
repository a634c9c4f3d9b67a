"""What a model is tried on: the caller's inputs, checked, or token ids made up."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...positions.tensor_checks import with_values
from ...support.errors import first_line
from .running import Running

ROWS, LENGTH, FEWEST = 2, 24, 8
IDS = (torch.int64, torch.int32)  # what an embedding takes
LARGEST_ID = 1000  # of made-up ids: special tokens mostly stand at the ends of a vocabulary


@dataclass(frozen=True)
class Inputs:
    """``tokens [B, S]`` for the laws, and the ``arguments`` of the call in which attentions are watched."""

    tokens: Tensor
    arguments: dict[str, Any] = field(default_factory=dict)

    def run(self, subject: Running) -> None:
        """Run the call that is watched, as far as it can be run; ``ValueError`` for arguments that it does not take."""
        try:
            subject.keep(subject.model(**self.arguments) if self.arguments else subject.call(self.tokens[:1]))
        except Exception as error:
            if self.arguments:
                told = f"{type(error).__name__}: {first_line(error)}"
                raise ValueError(f"inputs must be what the model takes; it raises {told}") from error


def of_model(model: nn.Module, inputs: Any) -> Inputs:
    device = next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
    config: Any = model.config
    text = config.get_text_config()
    words = getattr(text, "vocab_size", None) or LARGEST_ID
    if hasattr(inputs, "keys"):
        arguments = {k: v for k, v in inputs.items()}
        with_values(**{f"inputs[{name!r}]": value for name, value in arguments.items()})
        if isinstance(ids := arguments.get("input_ids"), Tensor):
            _check_dtype("inputs['input_ids']", ids)
        return Inputs(made_up(words, device), arguments)
    if inputs is None:
        return Inputs(made_up(words, device))
    ids = _checked(inputs)
    if int(ids.min()) < 0 or int(ids.max()) >= words:
        raise ValueError(f"inputs must be token ids from 0 to {words - 1}, got {int(ids.min())} to {int(ids.max())}")
    return Inputs(ids.to(device))


def _check_dtype(name: str, ids: Tensor) -> None:
    if ids.dtype not in IDS:
        raise ValueError(
            f"{name} must be token ids in torch.int64 or torch.int32, got {ids.dtype}; convert with .long()"
        )


def of_black_box(inputs: Any) -> Tensor:
    return made_up(32, torch.device("cpu")) if inputs is None else _checked(inputs)


def made_up(words: int, device: torch.device) -> Tensor:
    random = torch.Generator("cpu").manual_seed(0)
    low, high = (3, min(words, LARGEST_ID)) if words > 8 else (0, words)
    return torch.randint(low, high, (ROWS, LENGTH), generator=random, device="cpu").to(device)


def _checked(inputs: Any) -> Tensor:
    if not isinstance(inputs, Tensor) or inputs.ndim != 2 or inputs.shape[1] < FEWEST or inputs.shape[0] < 1:
        got = list(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        rule = f"token ids [batch, seq] of at least {FEWEST} tokens, or a dictionary of keyword arguments"
        raise ValueError(f"inputs must be {rule}, got {got}")
    with_values(inputs=inputs)
    _check_dtype("inputs", inputs)
    return inputs if len(inputs) > 1 else torch.cat((inputs, inputs.flip(1)))
