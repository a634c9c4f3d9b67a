"""A few tokens for a model that nobody gave inputs for."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .call import Call, CannotRun
from .tiny import first_inputs
from .tiny.picture_call import inputs_of

TOKENS = 7  # a number that is seldom one of heads


def made_up(model: nn.Module) -> Call:
    """A call that the model takes: token ids, a clip and words, a picture, or numbers of the width of its first layer.

    Raises `CannotRun` with what the model raised, and what its forward takes.
    """
    config: Any = getattr(model, "config", None)
    of_diffusers = isinstance(config, Mapping)
    if of_diffusers or callable(getattr(config, "to_dict", None)):
        try:
            device = next((p.device for p in model.parameters()), torch.device("cpu"))
            given = inputs_of(model, config) if of_diffusers else first_inputs(model)
            return Call(model, (), tree_map_only(Tensor, lambda x: x.to(device), given), made_up=True)
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
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if isinstance(shown := getattr(model, "default_cfg", None), Mapping) and "input_size" in shown:  # timm
        weight = next(model.parameters())
        yield Call(model, (torch.randn(1, *shown["input_size"], generator=made).to(weight),))
    words = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    if words:
        ids = torch.randint(0, min(words), (1, TOKENS), generator=made).to(device)
        positions = torch.arange(TOKENS, device=device)[None]
        yield Call(model, (ids,))
        yield Call(model, (ids,), {"position_ids": positions})
        yield Call(model, (ids, positions))
    widths = dict.fromkeys(m.in_features for m in model.modules() if isinstance(m, nn.Linear))
    for width in list(widths)[:3]:
        yield Call(model, (torch.randn(1, TOKENS, width, generator=made).to(device),))


def _takes(model: nn.Module) -> str:
    try:
        return ", ".join(inspect.signature(model.forward).parameters)[:160]
    except (TypeError, ValueError):
        return "*args"
