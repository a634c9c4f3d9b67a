"""Tiny models: model type -> a model of that type with random weights, and inputs for it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from phasor.eye import tiny
from phasor.eye.tiny import inputs

from .changes_for_tiny import AFTER, BEFORE, ONLY_SDPA
from .walk import default_config, quiet

LENGTH, WINDOW = 12, 8  # tokens


def tiny_config(model_type: str) -> Any:
    """The default config made small by the rules of a model that is observed, and as `changes_for_tiny` says."""
    whole = _merged(default_config(model_type).to_dict(), BEFORE.get(model_type, {}))
    small = tiny.tiny_config(whole).config
    with quiet():
        return type(small)(**_merged(_with_short_windows(small.to_dict()), AFTER.get(model_type, {})))


def _with_short_windows(data: dict[str, Any]) -> dict[str, Any]:
    """A window that few tokens fill."""
    inside = {k: _with_short_windows(v) if isinstance(v, dict) else v for k, v in data.items()}
    wide = isinstance(data.get("sliding_window"), int) and data["sliding_window"] > WINDOW
    return inside | ({"sliding_window": WINDOW} if wide else {})


def _merged(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {k for k, v in changes.items() if isinstance(v, dict) and isinstance(data.get(k), dict)}
    return {**data, **{k: _merged(data[k], v) if k in both else v for k, v in changes.items()}}


def tiny_model(model_type: str) -> torch.nn.Module:
    """A model of this type with random weights, in evaluation mode."""
    model = tiny.tiny_model(tiny_config(model_type))
    if model_type in ONLY_SDPA:
        model.config._attn_implementation = "sdpa"  # type: ignore[union-attr]
    return model


def tiny_inputs(model: torch.nn.Module) -> dict[str, Any]:
    """The first inputs of `candidates` that the model takes; raises what the last one raised."""
    error: Exception = ValueError(f"no inputs are known for {type(model).__name__}")
    for made in candidates(model):
        try:
            if outputs(model, made):
                return made
        except Exception as raised:
            error = raised
    raise error


def candidates(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """Inputs as the eye makes them up, of two texts that are longer than a window."""
    return inputs.candidates(model, rows=2, tokens=LENGTH)


def outputs(model: torch.nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Every floating-point tensor of the model's output."""
    with quiet(), torch.no_grad():
        result = model(**inputs)
    return _tensors(result)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []
