"""Tiny models: model type -> a model of that type with random weights, and inputs for it."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from phasor.eye import tiny

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
    """The first inputs of `_candidates` that the model takes; raises what the last one raised."""
    error: Exception = ValueError(f"no inputs are known for {type(model).__name__}")
    for inputs in _candidates(model):
        try:
            if outputs(model, inputs):
                return inputs
        except Exception as raised:
            error = raised
    raise error


def _candidates(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """Words, patches on a grid, an image, sound: what the parameters of ``forward`` ask for, in usual shapes."""
    names, config = inspect.signature(model.forward).parameters, model.config
    made = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=made)

    words = min(90, getattr(config.get_text_config(), "vocab_size", None) or 90)
    ids = torch.randint(3, words, (2, LENGTH), generator=made)
    size = next((v for n in ("patch_size", "spatial_patch_size") if isinstance(v := getattr(config, n, None), int)), 14)
    hidden = getattr(config, "hidden_size", None) or 64
    if "input_ids" in names:
        yield {"input_ids": ids, **({"decoder_input_ids": ids} if "decoder_input_ids" in names else {})}
    if "grid_thw" in names or "image_grid_thw" in names:
        grid = "grid_thw" if "grid_thw" in names else "image_grid_thw"
        image = "hidden_states" if "hidden_states" in names else "pixel_values"
        more = {"merge_sizes": torch.tensor([2, 2])} if "merge_sizes" in names else {}
        for patch in (3 * size**2, 3 * size**2 * getattr(config, "temporal_patch_size", 1)):
            yield {image: noise(48, patch), grid: torch.tensor([[1, 4, 4], [1, 4, 8]]), **more}
        for patch in (noise(48, 3, size, size), noise(48, 3, getattr(config, "temporal_patch_size", 1), size, size)):
            yield {image: patch, grid: torch.tensor([[1, 4, 4], [1, 4, 8]]), **more}
    elif "pixel_position_ids" in names:
        cells = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij"), -1).reshape(1, -1, 2)
        yield {"pixel_values": noise(1, 36, 3 * size**2), "pixel_position_ids": cells}
    elif "pixel_values_videos" in names:
        yield {"pixel_values_videos": noise(1, 4, 3, 64, 64), "skip_predictor": True}
    elif "pixel_values" in names:
        side = next((v for n in ("image_size",) if isinstance(v := getattr(config, n, None), int)), 64)
        sizes = {"image_sizes": torch.tensor([[side, side]])} if "image_sizes" in names else {}
        yield {"pixel_values": noise(1, 3, side, side), **sizes}
    if "input_features" in names:
        bins = getattr(config, "num_mel_bins", None) or 80
        widths = (bins, getattr(config, "feature_projection_input_dim", bins))
        yield from ({"input_features": noise(1, 64, width)} for width in widths)
        yield {"input_features": noise(1, bins, 64)}
    if "input_values" in names:
        yield from ({"input_values": x} for x in (noise(1, 1, 4000), noise(1, 4000)))
    if {"input_ids", "pixel_values"} <= set(names):
        side = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 64)
        yield {"input_ids": ids[:1], "pixel_values": noise(1, 3, side, side)}
    if {"input_values", "input_features"} <= set(names):
        yield {"input_values": noise(1, 1, 4000), "input_features": noise(1, 12, 160)}
    if "past_values" in names:
        yield {"past_values": [noise(64)]}
    if "inputs_embeds" in names:
        yield {"inputs_embeds": noise(2, LENGTH, hidden)}


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
