"""`read_config`: find the text part of a config, recognise its family, read it, and refuse what is left over."""

import json
import math
import os
from pathlib import Path
from typing import Any

from .families import FAMILIES
from .family import Family
from .hf import read_text_config
from .keys import ROPE_WORDS, Keys, looks_like_rope, near
from .model import ModelRotary
from .others import ALIASES, ARCHITECTURES, NOT_ROTARY, REMOTE, UNREADABLE
from .quirks import no_rotary

MAX_BYTES = 64 * 2**20
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config.text_config", "decoder", "thinker_config")
KNOWN = {**FAMILIES, **REMOTE}
OTHER_POSITIONS = {"max_position_embeddings", "num_position_embeddings", "position_embedding_size"}
UNRELATED = ("quantization_config", "compression_config", "generation_config", "auto_map", "task_specific_params")


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
    _check_numbers(config)
    parts = parts_of(config)
    chosen = _choose(config, parts, part)
    data, family_name, family = _recognise(config, parts, chosen)
    path = f"{chosen}." if chosen else ""
    model, keys = read_text_config(family_name, family, data, path)
    _refuse_leftovers(family_name, config, chosen, keys, parts)
    return _with(model, parts, str(data.get("model_type") or family_name))


def load(source: Any) -> dict[str, Any]:
    """The config as a dictionary, from whatever was given."""
    if isinstance(source, dict):
        return source
    if isinstance(source, str | os.PathLike):
        return _load_file(Path(source))
    if callable(getattr(source, "to_dict", None)) and not isinstance(source, type):
        data = source.to_dict()
        if isinstance(data, dict):
            return data
    raise ValueError(
        "source must be the path of a config.json, a folder that holds one, a dictionary, or a transformers config "
        f"with to_dict(), got {type(source).__name__}"
    )


def _load_file(path: Path) -> dict[str, Any]:
    try:
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            inside = "; the folder has no config.json" if path.is_dir() else ""
            raise ValueError(f"source must be an existing file or a folder with a config.json, got {str(path)!r}{inside}")
        if (size := file.stat().st_size) > MAX_BYTES:
            raise ValueError(f"source {str(file)!r} has {size} bytes; a config has at most {MAX_BYTES}")
        data = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"source {str(path)!r} is not JSON in UTF-8: {error}") from None
    except RecursionError:
        raise ValueError(f"source {str(path)!r} is nested too deeply to be a config") from None
    except OSError as error:
        raise ValueError(f"source {str(path)!r} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"source {str(path)!r} must hold a JSON object, got {type(data).__name__}")
    return data


def _check_numbers(config: dict[str, Any]) -> None:
    """No NaN, no Infinity, no endless nesting, only words as keys."""
    todo: list[tuple[str, Any, int]] = [("", config, 0)]
    while todo:
        path, value, depth = todo.pop()
        if depth > 100:
            raise ValueError(f"{path[:60]}… is nested more than 100 deep; a config is not")
        if isinstance(value, float) and not math.isfinite(value) and ROPE_WORDS.search(path):
            raise ValueError(f"{path} must be a finite number, got {value!r}")
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(key, str):
                    todo.append((f"{path}.{key}" if path else key, inner, depth + 1))
                elif path == "":
                    raise ValueError(f"config keys must be words, got {key!r}")
        elif isinstance(value, list | tuple):
            todo += [(f"{path}[{i}]", inner, depth + 1) for i, inner in enumerate(value) if not isinstance(inner, int)]


def parts_of(config: dict[str, Any], prefix: str = "", depth: int = 0) -> dict[str, dict[str, Any]]:
    """Dotted path -> nested config, for every model inside a composite config."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in config.items():
        if not isinstance(value, dict) or not (key.endswith("_config") or key in ("decoder", "encoder")):
            continue
        if key in UNRELATED or depth > 8:
            continue
        if value.get("model_type") or any(n in value for n in ("hidden_size", "num_hidden_layers", "d_model")):
            found[prefix + key] = value
            found.update(parts_of(value, f"{prefix}{key}.", depth + 1))
    return found


def _type_of(data: dict[str, Any], parent: str, key: str) -> str:
    """The family of one config: its model_type, else its architecture, else what its parent calls it."""
    for value in (data.get("model_type"), data.get("model")):
        if isinstance(value, str) and value:
            return value
    architectures = data.get("architectures")
    for name in architectures if isinstance(architectures, list) else ():
        if isinstance(name, str) and name in ARCHITECTURES:
            return ARCHITECTURES[name]
    if key in ("text_config", "llm_config"):
        return "llama" if parent.startswith("llava") else f"{parent}_text"
    return ""


def _family_name(name: str, data: dict[str, Any]) -> str:
    name = ALIASES.get(name, name)
    if name == "minicpmv":
        version = data.get("version")
        name = {2.6: "qwen2", 4.0: "llama", 4: "llama"}.get(version) if isinstance(version, int | float) else None  # type: ignore[assignment]
        if name is None:
            raise ValueError(f"version must say which language model this minicpmv holds (2.6 or 4.0), got {version!r}")
    if name not in KNOWN and f"{name}_text" in {**KNOWN, **UNREADABLE}:
        return f"{name}_text"
    return name


def _choose(config: dict[str, Any], parts: dict[str, dict[str, Any]], part: str | None) -> str:
    """The path of the part to read; ``""`` for the config itself."""
    if part is None:
        return next((p for p in TEXT_PARTS if p in parts and _readable(config, parts, p)),
                    next((p for p in TEXT_PARTS if p in parts), ""))  # fmt: skip
    if part and part not in parts:
        raise ValueError(f"part must be one of {sorted(parts) or ['']}, got {part!r}{near(str(part), parts)}")
    if part and not _readable(config, parts, part):
        name = parts[part].get("model_type")
        texts = [p for p in parts if _readable(config, parts, p)]
        if isinstance(name, str) and (name in NOT_ROTARY or name in UNREADABLE):
            return part
        raise ValueError(f"part {part!r} (model_type {name!r}) is not a text model; parts that can be read: {texts}")
    return part


def _readable(config: dict[str, Any], parts: dict[str, dict[str, Any]], path: str) -> bool:
    if any(word in path for word in ("vision", "audio", "visual", "image", "slice")):
        return False
    try:
        return _family_name(_name(config, parts, path), parts[path]) in KNOWN
    except ValueError:
        return False


def _name(config: dict[str, Any], parts: dict[str, dict[str, Any]], path: str) -> str:
    above, _, key = path.rpartition(".")
    parent = parts[above] if above else config
    return _type_of(parts[path] if path else config, str(parent.get("model_type") or ""), key)


def _recognise(
    config: dict[str, Any], parts: dict[str, dict[str, Any]], path: str
) -> tuple[dict[str, Any], str, Family]:
    data = parts[path] if path else config
    named = _name(config, parts, path) if path else _type_of(config, "", "")
    where = f" of {path}" if path else ""
    name = _family_name(named, data)
    if named == "gpt_neo" and data.get("rotary") is not True:
        raise no_rotary("gpt_neo", "uses learned absolute positions")
    if name in KNOWN:
        return data, name, KNOWN[name]
    if name in NOT_ROTARY:
        raise no_rotary(name, NOT_ROTARY[name])
    if name in UNREADABLE:
        raise ValueError(f"model_type {name!r} cannot be read: {UNREADABLE[name]}; describe what you need with RotarySpec")
    if not name:
        raise ValueError(
            f"model_type{where} is missing, and architectures {data.get('architectures')!r} is not known: pair layout and "
            "defaults cannot be guessed; add model_type, or describe the encoding with RotarySpec yourself"
        )
    raise ValueError(
        f"model_type{where} {name!r} is not known: pair layout and defaults cannot be guessed{near(name, KNOWN)}; "
        "describe the encoding with RotarySpec yourself"
    )


def _refuse_leftovers(
    name: str, config: dict[str, Any], path: str, keys: Keys, parts: dict[str, dict[str, Any]]
) -> None:
    """Every key about positions, in the part, in its settings and above it, was used; else it is named."""
    known = sorted(keys.used)
    ours = [d for p, d in parts.items()]
    for place, key in keys.unused():
        if looks_like_rope(key) and key not in OTHER_POSITIONS:
            raise ValueError(
                f"{place}{key} is not understood in a config of {name}, and may change the encoding"
                f"{near(key, known)}. Remove the key if it has no effect, or describe the encoding with RotarySpec"
            )
    used_inside = {"attn_config": {"rope_theta"}, "rope_scaling": None, "rope_parameters": None}
    for place, data in keys.places:
        for key, value in data.items():
            if isinstance(value, dict) and key not in UNRELATED and not any(value is d for d in ours):
                if key not in used_inside or key == "attn_config":
                    _refuse_inside(f"{place}{key}.", value, used_inside.get(key) or set(), ours)
    if path:
        _refuse_above(name, config, path, keys)


def _refuse_inside(path: str, data: dict[str, Any], allowed: set[str], parts: list[dict[str, Any]]) -> None:
    for key, value in data.items():
        if not isinstance(key, str):
            continue
        if ROPE_WORDS.search(key) and key not in allowed and key not in OTHER_POSITIONS and value not in (None, False):
            raise ValueError(f"{path}{key} is not understood; remove it if it has no effect on positions")
        if isinstance(value, dict) and not any(value is p for p in parts):
            _refuse_inside(f"{path}{key}.", value, allowed, parts)


def _refuse_above(name: str, config: dict[str, Any], path: str, keys: Keys) -> None:
    """Keys above the part must repeat what the part says."""
    inner = keys.places[0][1]
    level: dict[str, Any] = config
    walked = ""
    for step in path.split("."):
        for key, value in level.items():
            if not isinstance(key, str) or not ROPE_WORDS.search(key) or value is None or key in OTHER_POSITIONS:
                continue
            if key in inner and inner[key] != value:
                raise ValueError(
                    f"{walked}{key} and {path}.{key} contradict each other: {value!r} and {inner[key]!r}; keep one"
                )
            if key not in inner:
                raise ValueError(f"{walked}{key} stands outside {path}, which has no such key; move it there or remove it")
            keys.sources[f"{walked}{key}"] = f"repeats {path}.{key}"
        level = level[step]
        walked += f"{step}."


def _with(model: ModelRotary, parts: dict[str, dict[str, Any]], model_type: str) -> ModelRotary:
    import dataclasses

    return dataclasses.replace(model, parts=tuple(parts), model_type=model_type)
