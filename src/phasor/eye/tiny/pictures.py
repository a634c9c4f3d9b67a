"""A small model of pictures, video or sound, as diffusers and timm build it from a config."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from .model import noisy

LAYERS = re.compile(r"^(n|num)_(\w+_)?(layers|blocks)$|^(\w+_)?depth$|^(layers|nlayers)$")
HEADS = re.compile(r"^(?P<part>\w*?)(num_|n_|dit_)(?P<kind>cross_)?(attention_)?heads$")
KEY_HEADS = ("num_kv_heads", "num_key_value_heads", "n_kv_heads", "num_key_value_attention_heads")
WIDTHS = ("hidden_size", "dim", "embed_dim", "dit_dim")
LENGTHS = ("max_text_seq_length", "text_len", "text_len_t5")  # of words
LESS = {"max_resolution": [16, 16], "approximator_hidden_dim": 64, "motion_encoder_size": 16}  # nothing turns by it


def class_of(package: str, name: str) -> type[nn.Module] | None:
    """A class of a package by its name, if it is a module; raises ``ImportError`` where the package is not there."""
    found = getattr(importlib.import_module(package), name, None) if name.isidentifier() else None
    return found if inspect.isclass(found) and issubclass(found, nn.Module) else None


def with_defaults(cls: type[nn.Module], config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what its class takes for what it does not say, which is the size of a whole model."""
    takes = inspect.signature(cls).parameters.values()
    return {one.name: one.default for one in takes if one.default is not one.empty} | dict(config)


def few_words(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a model whose texts are as short as those of a made-up call."""
    return {**config, **{key: 4 for key in LENGTHS if config.get(key)}}


def small(config: Mapping[str, Any], all_heads: bool = False) -> dict[str, Any]:
    """The config with one layer of each kind and two heads, or all of them, each as wide as it was."""
    new = {key: value for key, value in config.items() if not key.startswith("_")}
    new |= {key: value for key, value in LESS.items() if new.get(key)}
    for key, value in new.items():
        if (LAYERS.search(key) or key.endswith("_blocks")) and isinstance(value, int):
            new[key] = min(value, 1)
        if key.endswith("_layers") and isinstance(value, list | tuple) and value:
            new[key] = [0]  # which layers have something more
    axes = new.get("axes_dims")
    if isinstance(new.get("model_dim"), int) and isinstance(axes, list | tuple):
        new["model_dim"] = 2 * sum(axes)  # its heads are as wide as its axes
    for key in [key for key in new if HEADS.match(key) and not all_heads]:
        heads, match = new[key], HEADS.match(key)
        assert match is not None
        part = match["part"] + (match["kind"] or "")
        each = new.get(f"{part}attention_head_dim") or new.get(f"{part}head_dim")
        width = next((key for key in WIDTHS if new.get(key)), "") if not part else ""
        if isinstance(heads, int) and heads > 2 and (each or width):
            old = new[width] if width else heads * int(each or 0)
            per = each or old // heads
            sized = {k: v for k, v in new.items() if v == old and isinstance(v, int)}
            new |= {k: 2 * per for k in sized} | {key: 2}
            new |= {k: 1 if new[k] < heads else 2 for k in KEY_HEADS if isinstance(new.get(k), int) and not part}
    return new


def made_of(cls: type[nn.Module], config: Mapping[str, Any]) -> nn.Module:
    """A model of diffusers with what a config says that its class takes."""
    takes = inspect.signature(cls).parameters
    return cls(**{key: value for key, value in config.items() if key in takes})


def built(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with random weights, noise where they would start at zero."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = make().float().eval()
        for parameter in model.parameters():
            noisy(parameter)
    return model
