"""Tiny models: model type -> a model of that type with random weights, and inputs for it."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .changes_for_tiny import CHANGES, ONLY_SDPA, WIDTHS
from .shrink import shrink
from .source import read_source, rotating
from .walk import default_config, quiet

LENGTH = 12


def tiny_config(model_type: str) -> Any:
    config = default_config(model_type)
    with quiet():
        return type(config)(**_changed(shrink(config.to_dict(), WIDTHS.get(model_type, 64))))


def _changed(data: dict[str, Any]) -> dict[str, Any]:
    """With the changes of `CHANGES`, in the parts as well."""
    inside = {k: _changed(v) if isinstance(v, dict) and "model_type" in v else v for k, v in data.items()}
    text, tower = inside.get("text_config"), inside.get("vision_config")
    if isinstance(text, dict) and isinstance(tower, dict) and "out_hidden_size" in tower and "hidden_size" in text:
        inside["vision_config"] = {**tower, "out_hidden_size": text["hidden_size"]}
    return _merged(inside, CHANGES.get(str(data.get("model_type")), {}))


def _merged(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {k for k, v in changes.items() if isinstance(v, dict) and isinstance(data.get(k), dict)}
    return {**data, **{k: _merged(data[k], v) if k in both else v for k, v in changes.items()}}


def model_class(config: Any) -> type[torch.nn.Module]:
    """The class that transformers runs for a config: an auto class's, else the last model of its file built from it."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    mappings = [auto.MODEL_MAPPING, *(m for name, m in vars(auto).items() if name.endswith("_MAPPING"))]
    for mapping in mappings:
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    names = [n for n in rotating().get(type(config).__name__, ()) if _is_model(n)]
    if not names:
        raise ValueError(f"no model of transformers is built from a {type(config).__name__} alone")
    folder, module, name = names[-1]
    return getattr(importlib.import_module(f"transformers.models.{folder}.{module}"), name)


def _is_model(name: tuple[str, str, str]) -> bool:
    bases = read_source().bases.get(name, [])
    own = any(b == "PreTrainedModel" or b.endswith("PreTrainedModel") or _is_model((*name[:2], b)) for b in bases)
    return own and not name[2].endswith("PreTrainedModel")


def tiny_model(model_type: str, **options: Any) -> torch.nn.Module:
    """A model of this type with random weights, in evaluation mode. ``options``: e.g. ``attn_implementation``."""
    torch.manual_seed(0)
    config = tiny_config(model_type)
    usual = "sdpa" if model_type in ONLY_SDPA else "eager"
    config._attn_implementation = options.pop("attn_implementation", usual)
    with quiet():
        model = model_class(config)(config).eval()
    for parameter in model.parameters():
        # what starts at zero (ZAYA's temperature of the keys) would hide the rotation
        wild = parameter.numel() and not parameter.abs().max() < 1e4  # memory that no initialisation reached
        if wild or not parameter.any() or (parameter.ndim > 1 and parameter.std() < 0.02):
            torch.nn.init.normal_(parameter.data, std=0.05)
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
