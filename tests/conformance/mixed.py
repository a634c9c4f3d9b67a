"""Images, video and sound inside a composite model: alone, and in the places that its text leaves for them."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from phasor.tools.patch.sites import callers, rotating_methods

from .given import inputs_for
from .pieces import noise
from .tiny import _tensors, candidates
from .walk import quiet

KINDS = {  # its method -> config of the tower, the token of a place, the number of mm_token_type_ids
    "get_image_features": (("vision_config",), ("image_token_id", "image_token_index"), 1),
    "get_video_features": (("vision_config",), ("video_token_id", "video_token_index"), 2),
    "get_audio_features": (("audio_config", "encoder_config"), ("audio_token_id", "audio_token_index"), 3),
}
RENAMED = {"grid_thw": "image_grid_thw", "hidden_states": "pixel_values"}
VIDEO = {"pixel_values": "pixel_values_videos", "image_grid_thw": "video_grid_thw"}


def mixed(model: nn.Module) -> Iterator[tuple[str, Callable[[Any], list[Tensor]]]]:
    """The features of each kind alone, and then with words around them."""
    for method, (_, tokens, number) in KINDS.items():
        if (given := _given(model, method)) is None:
            continue
        kind = method.split("_")[1]
        yield f"{kind} alone", lambda m, n=method, g=given: _tensors(getattr(m, n)(**g))
        given = _one(given)
        token = next((t for name in tokens if isinstance(t := getattr(model.config, name, None), int)), None)
        count = _count(model, method, given)
        if token is None or not count:
            continue
        ids = torch.tensor([[5, 6, 7, *[token] * count, 8, 9, 10]])
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **given}
        if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
            inputs["mm_token_type_ids"] = (ids == token).int() * number
        yield f"{kind} in text", lambda m, i=inputs: _tensors(m(**i))


def _one(given: dict[str, Any]) -> dict[str, Any]:
    """The first image of several: in text, there would be words between them."""
    grid = next((n for n in given if n.endswith("grid_thw")), None)
    if grid is None:
        return given
    patches = int(given[grid][0].prod())
    return {n: v[:1] if n in (grid, "merge_sizes") else v[:patches] for n, v in given.items()}


def towers(model: nn.Module) -> Iterator[tuple[str, Callable[[Any], list[Tensor]]]]:
    """Each model inside another that rotates and is not its text model, run alone."""
    done: dict[str, Any] = {}
    for path, module in model.named_modules():
        config = getattr(module, "config", None)
        own = isinstance(module, PreTrainedModel) and config is not model.config
        if not path or not own or any(path.startswith(f"{other}.") and config is one for other, one in done.items()):
            continue
        done[path] = config
        if config is model.config.get_text_config() or not [*callers(module), *rotating_methods(module)]:
            continue
        inputs = inputs_for(config.model_type, module)
        if inputs and not callable(inputs):
            yield f"{path} alone", lambda m, p=path, i=inputs: _tensors(m.get_submodule(p)(**i))


def _given(model: nn.Module, method: str) -> dict[str, Any] | None:
    """The first inputs of the tower that the method takes."""
    function = getattr(model, method, None)
    if function is None:
        return None
    takes = inspect.signature(function).parameters
    for inputs in _of_tower(model, method, takes):
        chosen = {n: v for n, v in inputs.items() if n in takes}
        try:
            with quiet(), torch.no_grad():
                function(**chosen)
        except Exception:
            continue
        return chosen
    return None


def _of_tower(model: nn.Module, method: str, takes: Any) -> Iterator[dict[str, Any]]:
    names = KINDS[method][0]
    config = next((c for n in names if (c := getattr(model.config, n, None)) is not None), None)
    for tower in [m for m in model.modules() if config is not None and getattr(m, "config", None) is config][:1]:
        for inputs in candidates(tower):
            named = {RENAMED.get(n, n): v for n, v in inputs.items()}
            yield {VIDEO.get(n, n): v for n, v in named.items()} if "video" in method else named
    size = getattr(config, "image_size", None)
    if isinstance(size, int):
        sizes = {"image_sizes": torch.tensor([[size, size]])}
        yield {"pixel_values": noise(1, 3, size, size), **sizes}
        yield {"pixel_values": noise(1, 1, 3, size, size), **sizes}
        yield {"pixel_values_videos": noise(1, 2, 3, size, size), **sizes}
    if "input_features" in takes:
        bins = getattr(config, "num_mel_bins", None) or 80
        mask = torch.ones(1, 64, dtype=torch.long)
        for shape in ((1, bins, 64), (1, 64, bins), (1, bins, 3000)):
            for name in ("input_features_mask", "feature_attention_mask", "attention_mask"):
                yield {"input_features": noise(*shape), name: mask}


def _count(model: nn.Module, method: str, given: dict[str, Any]) -> int:
    """How many places in the text the features take."""
    with quiet(), torch.no_grad():
        result = getattr(model, method)(**given)
    found = getattr(result, "pooler_output", None)
    found = _tensors(result)[0] if found is None else found
    width = getattr(model.config.get_text_config(), "hidden_size", None)
    return sum(x.numel() for x in _tensors(found)) // width if width else 0
