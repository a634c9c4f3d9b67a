"""A config of diffusers or timm: its class is built small, and the model observed.

Only code of the installed package runs; nothing of the folder that the config came from, and nothing is loaded.
"""

import importlib
import inspect
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...rotary.model_rotary import ModelRotary
from .default_sizes import default_size
from .keys import ROPE_WORDS
from .refusal import Reason, Refused
from .row import NoRotary

if TYPE_CHECKING:
    from torch import nn

    from ...eye import Observation

    Seen = tuple[Observation, nn.Module, tuple[int | None, int | None]]

CLASS = {"_class_name": "diffusers", "architecture": "timm"}  # the key that names a class, and whose it is
WIDTHS = re.compile(r"^(rope_)?axes_dims?(_rope)?$")  # keys for the channels of each axis
SMALL_PICTURE = (256, 256)  # shows as much of a model of timm that could not be built small:
LARGE = 100_000_000  # one of more weights
HEADS = ("num_attention_heads", "num_heads", "n_heads")
KEY_HEADS = ("num_kv_heads", "num_key_value_heads", "n_kv_heads", "num_key_value_attention_heads")


def of_pictures(data: Mapping[str, Any]) -> str:
    """The key that names a class of diffusers or timm; empty for any other config."""
    return next((key for key in CLASS if isinstance(data.get(key), str) and "model_type" not in data), "")


def read_pictures(data: Mapping[str, Any]) -> ModelRotary:
    """What a small model of a config rotates; raises `NoRotary` and `Refused`."""
    return _read(json.dumps(data, sort_keys=True, default=str))


@lru_cache(maxsize=64)
def _read(text: str) -> ModelRotary:
    return seen_pictures(json.loads(text))[0]


def seen_pictures(data: dict[str, Any]) -> tuple[ModelRotary, "Observation", "nn.Module"]:
    """What a config's model rotates, what was observed on a small one, and the real one without weights."""
    key = of_pictures(data)
    name, package = data[key], CLASS[key]
    try:
        seen, real, heads = (_of_diffusers if package == "diffusers" else _of_timm)(name, data)
    except ImportError as error:
        said = f"{key} is {name!r}, which {package} builds: install {package} to have it observed ({error})"
        raise Refused(said, Reason.BEYOND, key) from None
    version = f"{package} {importlib.import_module(package).__version__}"
    axes = tuple(str(fact) for fact in seen.facts if fact.name == "axes")
    if seen.nothing_turns:
        said = "".join(f"; {fact.value}" for fact in seen.facts if fact.name.startswith("instead"))
        raise NoRotary(f"{name} rotates nothing in its attention, seen on a small model of {version}{said}")
    if seen.rotary is None:
        why = "; ".join((*axes, *seen.missing))
        said = f"{key} {name!r} was observed ({version}, two heads), and no spec says what it rotates: {why}"
        raise Refused(said, Reason.BEYOND, key)
    whole = _whole(seen, real)
    timm = package == "timm"  # elsewhere what stands before a picture is text, as long as the caller likes
    grid: dict[str, float | None] = {**_seen_grid(seen, next(iter(whole.distinct)).axes.count)}
    sources = {key: f"observed on a small model that {version} builds of this config"}
    if not timm:  # a clip of a few tokens was seen
        pipeline, size = default_size(name, data)
        grid = {axis: size.get(axis) for axis in grid}
        sources |= {"size": f"that of {pipeline} in {package}, where none is named"} if size else {}
    rotary = replace(
        whole,
        prefix_tokens=whole.prefix_tokens if timm else 0,
        suffix_tokens=whole.suffix_tokens if timm else 0,
        model_type=name,
        num_heads=heads[0] or seen.rotary.num_heads,
        num_kv_heads=heads[1] or heads[0] or seen.rotary.num_kv_heads,
        sources=sources,
        grid=grid,
        notes=(*axes, *seen.rotary.notes, *(f"not seen: {sentence}" for sentence in seen.missing)),
    )
    return rotary, seen, real


def _whole(seen: "Observation", real: "nn.Module") -> ModelRotary:
    """The encoding of all lists of layers that do as the longest one does, each as long as in the real model."""
    layers_of: Any = {path: real.get_submodule(path) if path else () for path in seen.parts}
    lists = {path: max(len(layers_of[path]), len(part.layers)) for path, part in seen.parts.items()}
    main = seen.parts[max(lists, key=lambda path: lists[path])]
    alike = [p for p, part in seen.parts.items() if part.distinct.keys() == main.distinct.keys()]
    layers = [main.layers[min(i, len(main.layers) - 1)] for p in alike for i in range(lists[p])]
    kinds = [p or "layers" for p in alike for _ in range(lists[p])]
    return replace(main, layers=tuple(layers), layer_types=tuple(kinds), temperatures=())


def _seen_grid(seen: "Observation", count: int) -> dict[str, float]:
    """What each of ``count`` coordinates counts, and how far it reaches in what was seen."""
    from ...eye.turned_by import reaches

    sides = (side for site in seen.sites for side in (site.q, site.k) if side.turns)
    return next((found for side in sides if len(found := reaches(side)) == count), {})


def _of_diffusers(name: str, data: dict[str, Any]) -> "Seen":
    """What was observed, the real model without weights, and its heads of queries and of keys."""
    import torch

    from ...eye import observe
    from ...eye.tiny.picture_call import inputs_of
    from ...eye.tiny.picture_tables import TABLES
    from ...eye.tiny.pictures import built, class_of, few_words, made_of, small, with_defaults

    made = class_of("diffusers", name)
    if made is None:
        version, by = importlib.import_module("diffusers").__version__, data.get("_diffusers_version", "unknown")
        said = f"diffusers {version} has no model of that name; the config was written by {by}: install that"
        raise Refused(f"_class_name is {name!r}, and {said}", Reason.VALUE, "_class_name")
    tables = next((one for one in TABLES if one in inspect.signature(made.forward).parameters), "")
    pipelines = (
        f"; its pipeline makes the tables ({tables}): observe the model with them (phasor.observe)" if tables else ""
    )
    takes = inspect.signature(made).parameters
    for key in (key for key in data if ROPE_WORDS.search(key) and not key.startswith("_") and key not in takes):
        raise Refused(f"{key}: {name} does not read it; remove the key, or name its class", Reason.UNREAD, key)
    data = with_defaults(made, data)
    try:
        model: Any = built(lambda: made_of(made, small(few_words(data))))
        seen = observe(model, inputs_of(model, model.config))
    except ImportError:
        raise
    except Exception as error:
        said = f"_class_name {name!r} could not be observed: {_widths(data) or error}{pipelines}"
        raise Refused(said, Reason.BEYOND, "_class_name") from error
    if (not seen.turning and pipelines) or (seen.nothing_turns and _speaks_of_one(made)):
        why = (
            pipelines or ", and the file of its class speaks of one; observe the model in a real call (phasor.observe)"
        )
        raise Refused(f"_class_name {name!r} was seen without rotation{why}", Reason.BEYOND, "_class_name")
    with torch.device("meta"):
        return seen, made_of(made, data), (_first(data, HEADS), _first(data, KEY_HEADS))


def _speaks_of_one(made: type) -> bool:
    """Whether a made-up call may have missed a rotation."""
    module = inspect.getmodule(made)
    return module is not None and bool(re.search("rotary|(?<![pu])rope", inspect.getsource(module), re.IGNORECASE))


def _widths(data: Mapping[str, Any]) -> str:
    """What is wrong with the widths of axes, where there are such keys."""
    head = data.get("attention_head_dim")
    for key, widths in data.items():
        if WIDTHS.match(key) and isinstance(widths, list) and all(isinstance(width, int) for width in widths):
            if any(width % 2 for width in widths):
                return f"{key} must be even numbers of channels, got {widths}"
            if isinstance(head, int) and sum(widths) != head:
                return f"{key} must add up to attention_head_dim {head}, got {widths} with sum {sum(widths)}"
    return ""


def _of_timm(name: str, data: dict[str, Any]) -> "Seen":
    import timm
    import torch

    from ...eye.tiny.pictures import built

    if not timm.is_model(name):
        raise Refused(
            f"architecture is {name!r}, and timm {timm.__version__} has no such model", Reason.VALUE, "architecture"
        )
    args = {**(data.get("model_args") or {}), "num_classes": 0}
    try:
        with torch.device("meta"):
            whole = timm.create_model(name, **args)
        attention = next((part for part in whole.modules() if {"num_heads", "head_dim"} <= vars(part).keys()), None)
        model = built(lambda: _small(name, args, attention))
        shown: Any = data.get("pretrained_cfg") or model.default_cfg
        stated = args.get("img_size") or shown["input_size"][1:]
        size = (stated, stated) if isinstance(stated, int) else tuple(stated)
        seen = _seen_on_picture(model, size)
    except Exception as error:
        said = f"architecture {name!r} could not be observed: {error}"
        raise Refused(said, Reason.BEYOND, "architecture") from error
    return seen, whole, (getattr(attention, "num_heads", None), getattr(attention, "num_kv_heads", None))


def _seen_on_picture(model: "nn.Module", size: tuple[int, ...]) -> "Observation":
    """What a model of timm turns in a picture of so many rows and columns; a large one in fewer, if it takes them."""
    import torch

    from ...eye import observe

    def seen(size: tuple[int, ...]) -> "Observation":
        return observe(model, {"x": torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0))})

    if sum(p.numel() for p in model.parameters()) > LARGE:
        with suppress(ValueError):  # some take one size alone
            return seen(SMALL_PICTURE)
    return seen(size)


def _small(name: str, args: dict[str, Any], attention: Any) -> "nn.Module":
    """A model with one layer and two heads as wide as its own, where its class is told how many."""
    import timm

    least: dict[str, Any] = {"depth": 1}
    if attention is not None:
        least |= {"num_heads": 2, "embed_dim": 2 * attention.head_dim}
    for sizes in (least, {"depth": 1}):
        with suppress(Exception):  # a class raises what it likes for sizes that it does not take
            return timm.create_model(name, **args, **sizes)
    return timm.create_model(name, **args)


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((data[name] for name in names if isinstance(data.get(name), int)), None)
