"""`read_config` and `read_parts`: load, find the part, read it, and refuse every key about positions left over."""

import os
from dataclasses import replace
from typing import Any

from .hf import read_text_config
from .indexers import INDEXER, read_indexer
from .keys import ROPE_WORDS, Keys, looks_like_rope, near
from .load import load
from .model import ModelRotary
from .names import KNOWN, Parts, has_own, held_by_frame, name_of, refused
from .parts import SETTINGS, choose, inner_parts, others_that_rotate, parts_of
from .towers import INNER, TOWERS, read_tower
from .unknown import read_by_keys
from .without import NoRotary

OTHER_POSITIONS = {"max_position_embeddings", "num_position_embeddings", "position_embedding_size"}
UNUSED_ABOVE = ("blt",)  # rope parameters beside the parts, which the code never reads


def read_config(source: str | os.PathLike[str] | dict[str, Any] | Any, part: str | None = None) -> ModelRotary:
    """The rotary encoding of every layer, from a model's own config. Strict: every rope key is used or refused.

    ``source`` is the path of a ``config.json``, of a folder that holds one, a dictionary, or a transformers config
    (anything with ``to_dict``). ``part`` names one part of a composite config (``"text_config"``,
    ``"vision_config"``, ``"talker_config.text_config"``); without it the text model is read, or, where there is none,
    the first part that rotates (`read_parts` reads them all). Nothing is imported and nothing downloaded.

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
    inner = inner_parts(config, parts)
    path = choose(config, parts, inner, part)
    try:
        return _read(config, parts, inner, path)
    except NoRotary as error:
        raise NoRotary(f"{error}{others_that_rotate(config, parts, path)}") from None


def read_parts(source: str | os.PathLike[str] | dict[str, Any] | Any) -> dict[str, ModelRotary | str]:
    """Every part of a config by its dotted path (``""``: the config itself): what it rotates, or why nothing is read.

    A sentence begins with ``no rotary`` where the part has none, and with ``not read`` where it could not be
    understood. ``source`` as in `read_config`; raises ``ValueError`` if it is no config at all.

    >>> toy = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {"model_type": "bert"}}
    >>> {path: type(found).__name__ for path, found in read_parts(toy).items()}
    {'': 'str', 'text_config': 'ModelRotary', 'vision_config': 'str'}
    >>> read_parts(toy)[""]
    'no rotary: this config only holds text_config, vision_config'
    """
    config = load(source)
    parts = parts_of(config)
    inner = inner_parts(config, parts)
    return {path: _read_or_say_why(config, parts, inner, path) for path in ("", *parts, *inner)}


def _read_or_say_why(config: dict[str, Any], parts: Parts, inner: dict[str, str], path: str) -> ModelRotary | str:
    try:
        return _read(config, parts, inner, path)
    except NoRotary as error:
        return f"no rotary: {error}"
    except ValueError as error:
        return f"not read: {error}"


def _read(config: dict[str, Any], parts: Parts, inner: dict[str, str], path: str) -> ModelRotary:
    path, what = (inner[path], path.rpartition(".")[2]) if path in inner else (path, "")
    data = parts[path] if path else config
    above, _, _ = path.rpartition(".")
    name, prefix = name_of(config, parts, path), f"{path}." if path else ""
    if what and what != INDEXER:
        name = INNER[name][what]
    if not what and (held := held_by_frame(config, parts, path)):
        raise NoRotary(f"{path or 'this config'} only holds {', '.join(held)}")
    if name in KNOWN:
        model, keys = read_text_config(name, KNOWN[name], data, prefix)
    elif name in TOWERS:
        model, keys = read_tower(name, data, prefix, parts.get(above, {}) if above else config)
    elif error := refused(name, data, path):
        raise error
    else:
        model, keys = read_by_keys(name, data, path, [*KNOWN, *TOWERS])
    _refuse_leftovers(name, keys, parts)
    if path and name in KNOWN:
        _refuse_above(config, path, keys)
    if what == INDEXER:
        model = read_indexer(name, data, model, prefix)
    part = f"{prefix}{what}" if what else path
    return replace(model, part=part, parts=(*parts, *inner), model_type=str(data.get("model_type") or name))


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
    """Keys above the text part must repeat what the part says, unless what stands above rotates itself."""
    inner = keys.places[0][1]
    level, walked = config, ""
    for step in path.split("."):
        for key, value in level.items() if not has_own(level) and level.get("model_type") not in UNUSED_ABOVE else ():
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
