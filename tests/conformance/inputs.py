"""The inputs that a model really takes, by name: words padded and cached, images of several sizes, sound, and both."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .given import inputs_for
from .mixed import mixed, towers
from .pieces import made, noise, words
from .tiny import _tensors
from .walk import quiet

Inputs = dict[str, Any] | Callable[[Any], list[Tensor]]
GRIDS = {
    "one image": [[1, 4, 4]], "several images": [[1, 4, 4], [1, 4, 8]], "an odd size": [[1, 6, 10]],
    "video": [[2, 4, 6]],
}  # fmt: skip
PADS = 3


def variants(model_type: str, model: nn.Module) -> Iterator[tuple[str, Inputs]]:
    """Name -> inputs, or a function of the model; not all models take all of them."""
    usual = inputs_for(model_type, model)
    yield "usual", usual
    takes = inspect.signature(model.forward).parameters
    if isinstance(usual, dict):
        yield from _padded(usual, takes)
        if "input_ids" in usual and {"cache", "use_cache"} <= {*takes, *_kwargs(takes)}:
            yield "cache", cached
        yield from _pictures(usual)
        yield from _longer(usual)
        yield "gradient", gradient(usual)
    yield from mixed(model)
    yield from towers(model)


def _kwargs(takes: Any) -> tuple[str, ...]:
    """What a forward that collects further arguments passes on."""
    return ("use_cache",) if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values()) else ()


def _padded(usual: dict[str, Any], takes: Any) -> Iterator[tuple[str, Inputs]]:
    ids = next((usual[n] for n in ("input_ids", "inputs_embeds") if isinstance(usual.get(n), Tensor)), None)
    if ids is None or "attention_mask" not in takes or "attention_mask" in usual or len(ids) < 2:
        return
    for name, pads in (("padded left", slice(0, PADS)), ("padded right", slice(-PADS, None))):
        mask = torch.ones(ids.shape[:2], dtype=torch.long)
        mask[0, pads] = 0
        yield name, {**usual, "attention_mask": mask}


def cached(model: Any) -> list[Tensor]:
    """Eight words, then one by the cache, then three."""
    ids, found, cache = words(2, 12), [], None
    for part in (ids[:, :8], ids[:, 8:9], ids[:, 9:]):
        more = {"decoder_input_ids": part} if "decoder_input_ids" in inspect.signature(model.forward).parameters else {}
        result = model(input_ids=ids if more else part, cache=cache, use_cache=True, **more)
        cache = result.cache
        found += _tensors(result[0])
    return found


def _pictures(usual: dict[str, Any]) -> Iterator[tuple[str, Inputs]]:
    grid = next((n for n in ("grid_thw", "image_grid_thw") if n in usual), None)
    patches = next((n for n in ("pixel_values", "hidden_states") if isinstance(usual.get(n), Tensor)), None)
    if grid and patches:
        for name, sizes in GRIDS.items():
            count, shape = sum(t * h * w for t, h, w in sizes), usual[patches].shape
            pixels = noise(1, count, *shape[2:]) if shape[0] == 1 and len(shape) > 3 else noise(count, *shape[1:])
            more = {"merge_sizes": usual["merge_sizes"][:1].expand(len(sizes))} if "merge_sizes" in usual else {}
            yield name, {**usual, **more, patches: pixels, grid: torch.tensor(sizes)}
    elif patches and usual[patches].ndim == 4 and "image_sizes" not in usual and "input_ids" not in usual:
        _, colours, height, width = usual[patches].shape
        yield "several images", {**usual, patches: noise(2, colours, height, width)}
        yield "an odd size", {**usual, patches: noise(1, colours, height // 2, 2 * width)}
    if isinstance(film := usual.get("pixel_values_videos"), Tensor):
        yield "several videos", {**usual, "pixel_values_videos": noise(2, *film.shape[1:])}
        yield "a longer video", {**usual, "pixel_values_videos": noise(1, 2 * film.shape[1], *film.shape[2:])}


def _longer(usual: dict[str, Any]) -> Iterator[tuple[str, Inputs]]:
    for name in ("input_features", "input_values"):
        if isinstance(sound := usual.get(name), Tensor):
            for times, said in ((1, "several sounds"), (2, "a longer sound")):
                shape = list(sound.shape)
                shape[-1 if name == "input_values" or shape[-1] == 64 else -2] *= times
                shape[0] = 2 if times == 1 else 1
                others = {k: v for k, v in usual.items() if not isinstance(v, Tensor) or len(v) == shape[0]}
                yield said, {**others, name: noise(*shape)}


def gradient(usual: dict[str, Any]) -> Callable[[Any], list[Tensor]]:
    """The gradients of all parameters, of the sum of all outputs."""

    def of(model: Any) -> list[Tensor]:
        with torch.enable_grad():
            found = [x for x in _tensors(model(**fresh(usual))) if x.requires_grad]
            sum(x.float().square().sum() for x in found).backward()
        given = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad(set_to_none=True)
        return given

    return of


def fresh(inputs: dict[str, Any]) -> dict[str, Any]:
    """Copies, because some models write into what they are given."""
    return {n: v.clone() if isinstance(v, Tensor) else v for n, v in inputs.items()}


def results(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """What a model makes of inputs; the random numbers that it draws are always the same."""
    torch.manual_seed(0)
    made.manual_seed(1)
    for module in model.modules():
        if hasattr(module, "rope_deltas"):  # kept from an earlier call, for its cache
            module.rope_deltas = None
    with quiet(), torch.no_grad():
        if callable(inputs):
            return inputs(model)
        return _tensors(model(**fresh(inputs)))


def in_half(model: nn.Module) -> nn.Module:
    """As a model is loaded in bfloat16: frequencies, which its modules form in float32, stay."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16() if parameter.is_floating_point() else parameter.data
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point() and not any(word in name for word in ("freq", "alpha", "embed_positions")):
                module._buffers[name] = buffer.bfloat16()
    return model


def halved(inputs: Inputs) -> Inputs:
    if callable(inputs):
        return inputs
    return {k: v.bfloat16() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in inputs.items()}
