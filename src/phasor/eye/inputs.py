"""A few tokens for a model that nobody gave inputs for."""

import inspect
from collections.abc import Iterator

import torch
from torch import nn

from .call import Call, CannotRun
from .tiny import first_inputs

TOKENS = 7  # a number that is seldom one of heads


def made_up(model: nn.Module) -> Call:
    """A call that the model takes: token ids, or numbers of the width of its first layer.

    Raises `CannotRun` with what the model raised, and what its forward takes.
    """
    if getattr(model, "config", None) is not None and callable(getattr(model.config, "to_dict", None)):
        try:
            return Call(model, (), first_inputs(model), made_up=True)
        except ValueError as error:
            raise CannotRun(f"{error}; give inputs=, what its forward takes ({_takes(model)})") from error
    first: CannotRun | None = None
    for call in _candidates(model):
        try:
            call.tape()
            return call
        except CannotRun as error:
            first = first or error
    raise first or CannotRun(f"give inputs=, what the model's forward takes ({_takes(model)})")


def _candidates(model: nn.Module) -> Iterator[Call]:
    made = torch.Generator().manual_seed(0)
    words = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    if words:
        ids = torch.randint(0, min(words), (1, TOKENS), generator=made)
        yield Call(model, (ids,))
        yield Call(model, (ids,), {"position_ids": torch.arange(TOKENS)[None]})
        yield Call(model, (ids, torch.arange(TOKENS)[None]))
    widths = dict.fromkeys(m.in_features for m in model.modules() if isinstance(m, nn.Linear))
    for width in list(widths)[:3]:
        yield Call(model, (torch.randn(1, TOKENS, width, generator=made),))


def _takes(model: nn.Module) -> str:
    try:
        return ", ".join(inspect.signature(model.forward).parameters)[:160]
    except (TypeError, ValueError):
        return "*args"
