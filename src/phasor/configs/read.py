"""`read_config`: load, find the text part, read it, and refuse every key about positions that is left over."""

import os
from dataclasses import replace
from typing import Any

from .hf import read_text_config
from .keys import ROPE_WORDS, Keys, looks_like_rope, near
from .load import load
from .model import ModelRotary
from .parts import SETTINGS, Parts, choose, parts_of, recognise

OTHER_POSITIONS = {"max_position_embeddings", "num_position_embeddings", "position_embedding_size"}


def read_config(source: str | os.PathLike[str] | dict[str, Any] | Any, part: str | None = None) -> ModelRotary:
    """The rotary encoding of every layer, from a model's own config. Strict: every rope key is used or refused.

    ``source`` is the path of a ``config.json``, of a folder that holds one, a dictionary, or a transformers config
    (anything with ``to_dict``). ``part`` names one part of a composite config (``"text_config"``,
    ``"talker_config.text_config"``); without it the text model is read. Nothing is imported and nothing downloaded.

    A key that is not understood, a contradiction, a missing size or a family that is not known raises ``ValueError``
    that names the key, the rule, the value and the way out, because a wrong rotary embedding never crashes: it makes
    the model a little worse with every token. Defaults come from the family's own code only, and
    ``ModelRotary.sources`` says which ones were used.

    >>> model = read_config({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    ...                      "num_hidden_layers": 2, "rope_theta": 500000.0})
    >>> model.layers[0].describe()
    'all 16 channels, halves, base 500000, no scaling, one axis, exact angles'
    >>> model.sources["rope_theta"], model.sources["head_dim"]
    ('base 500000', 'not in config: hidden_size / num_attention_heads = 16')
    """
    config = load(source)
    parts = parts_of(config)
    chosen = choose(config, parts, part)
    data, name, family = recognise(config, parts, chosen)
    model, keys = read_text_config(name, family, data, f"{chosen}." if chosen else "")
    _refuse_leftovers(name, keys, parts)
    if chosen:
        _refuse_above(config, chosen, keys)
    return replace(model, parts=tuple(parts), model_type=str(data.get("model_type") or name))


def _refuse_leftovers(name: str, keys: Keys, parts: Parts) -> None:
    """Every key about positions, in the config and in its settings, was used; else it is named."""
    known = sorted(keys.used)
    for place, key in keys.unused():
        if looks_like_rope(key) and key not in OTHER_POSITIONS:
            raise ValueError(
                f"{place}{key} is not understood in a config of {name}, and may change the encoding"
                f"{near(key, known)}. Remove the key if it has no effect, or describe the encoding with RotarySpec"
            )
    models = [id(part) for part in parts.values()]
    read = {"rope_scaling", "rope_parameters", "per_layer_config"} | ({"attn_config"} if name == "dbrx" else set())
    for place, data in keys.places:
        for key, value in data.items():
            if isinstance(value, dict) and key not in (*SETTINGS, *read) and id(value) not in models:
                _refuse_inside(f"{place}{key}.", value, models)


def _refuse_inside(path: str, data: dict[str, Any], models: list[int]) -> None:
    for key, value in data.items():
        if value in (None, False) or key in OTHER_POSITIONS:
            continue
        if isinstance(key, str) and ROPE_WORDS.search(key):
            raise ValueError(f"{path}{key} is not understood; remove the key if it has no effect on positions")
        if isinstance(value, dict) and id(value) not in models:
            _refuse_inside(f"{path}{key}.", value, models)


def _refuse_above(config: dict[str, Any], path: str, keys: Keys) -> None:
    """Keys above the part must repeat what the part says."""
    inner = keys.places[0][1]
    level, walked = config, ""
    for step in path.split("."):
        for key, value in level.items():
            if not isinstance(key, str) or not ROPE_WORDS.search(key) or value is None or key in OTHER_POSITIONS:
                continue
            if key in inner and inner[key] != value:
                raise ValueError(
                    f"{walked}{key} and {path}.{key} contradict each other: {value!r} and {inner[key]!r}; keep one"
                )
            if key not in inner:
                raise ValueError(f"{walked}{key} stands outside {path}, which has no such key; move or remove it")
            keys.sources[f"{walked}{key}"] = f"repeats {path}.{key}"
        level = level[step]
        walked += f"{step}."
