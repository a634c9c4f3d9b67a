"""Composite configs: which models are inside, which one is the text model, and what family it is."""

from typing import Any

from .families import FAMILIES
from .family import Family
from .keys import near
from .others import ALIASES, ARCHITECTURES, NOT_ROTARY, REMOTE, UNREADABLE

KNOWN = {**FAMILIES, **REMOTE}
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config.text_config", "decoder", "thinker_config")
MAY_BE_SHORT = ("text_config", "llm_config", "language_config")  # a text model whatever its config says of itself
NOT_TEXT = ("vision", "audio", "visual", "image", "slice")
SETTINGS = ("quantization_config", "compression_config", "generation_config", "auto_map", "task_specific_params")
MINICPMV = {2.6: "qwen2", 4.0: "llama"}  # version -> language model
Parts = dict[str, dict[str, Any]]


def no_rotary(model_type: str, encoding: str) -> ValueError:
    return ValueError(f"{model_type} {encoding}; it has no rotary embedding to read")


def parts_of(config: dict[str, Any], prefix: str = "", depth: int = 0) -> Parts:
    """Dotted path -> config of every model inside a composite config."""
    found: Parts = {}
    for key, value in config.items():
        if not isinstance(key, str) or key in SETTINGS or depth > 8:
            continue
        is_text = prefix + key in TEXT_PARTS or key == "text_config"
        if is_text and not isinstance(value, dict | None):
            raise ValueError(
                f"{prefix}{key} must be an object of keys, the config of the text model, got {value!r:.80}"
            )
        if not isinstance(value, dict) or not (key.endswith("_config") or key in ("decoder", "encoder")):
            continue
        stated = value.get("model_type") or any(n in value for n in ("hidden_size", "num_hidden_layers", "d_model"))
        if stated or (value and key in MAY_BE_SHORT):
            found[prefix + key] = value
            found.update(parts_of(value, f"{prefix}{key}.", depth + 1))
    return found


def choose(config: dict[str, Any], parts: Parts, part: str | None) -> str:
    """The path of the part to read; ``""`` for the config itself."""
    texts = [path for path in parts if _readable(config, parts, path)]
    if part is None:
        candidates = [*(p for p in TEXT_PARTS if p in texts), *(p for p in TEXT_PARTS if p in parts)]
        return candidates[0] if candidates else ""
    if not parts and part != "":
        raise ValueError(f"part must be left out, because this config has no parts, got {part!r}")
    if not isinstance(part, str) or (part and part not in parts):
        raise ValueError(f"part must be one of {sorted(parts)}, got {part!r}{near(str(part), parts)}")
    name = parts[part].get("model_type") if part else None
    refused_by_name = isinstance(name, str) and (name in NOT_ROTARY or name in UNREADABLE)
    if part and part not in texts and not refused_by_name:
        raise ValueError(f"part {part!r} (model_type {name!r}) is not a text model; parts that can be read: {texts}")
    return part


def _readable(config: dict[str, Any], parts: Parts, path: str) -> bool:
    if any(word in path for word in NOT_TEXT):
        return False
    try:
        return _family_name(_stated_name(config, parts, path), parts[path]) in KNOWN
    except ValueError:
        return False


def _stated_name(config: dict[str, Any], parts: Parts, path: str) -> str:
    """What a config calls itself: its model_type, else its architecture, else what its parent calls it."""
    data = parts[path] if path else config
    for value in (data.get("model_type"), data.get("model")):
        if isinstance(value, str) and value:
            return value
    architectures = data.get("architectures")
    for name in architectures if isinstance(architectures, list) else ():
        if isinstance(name, str) and name in ARCHITECTURES:
            return ARCHITECTURES[name]
    above, _, key = path.rpartition(".")
    if key in ("text_config", "llm_config"):
        parent = str((parts[above] if above else config).get("model_type") or "")
        return "llama" if parent.startswith("llava") else f"{parent}_text"
    return ""


def _family_name(name: str, data: dict[str, Any]) -> str:
    name = ALIASES.get(name, name)
    if name == "minicpmv":
        version = data.get("version")
        if not isinstance(version, int | float) or version not in MINICPMV:
            raise ValueError(f"version must say which language model this minicpmv holds (2.6 or 4.0), got {version!r}")
        return MINICPMV[version]
    if name not in KNOWN and (f"{name}_text" in KNOWN or f"{name}_text" in UNREADABLE):
        return f"{name}_text"
    return name


def recognise(config: dict[str, Any], parts: Parts, path: str) -> tuple[dict[str, Any], str, Family]:
    """The config of the chosen part, the name of its family, and the family; raises for those that cannot be read."""
    data = parts[path] if path else config
    name = _family_name(_stated_name(config, parts, path), data)
    where = f" of {path}" if path else ""
    if name == "gpt_neo" and data.get("rotary") is not True:
        raise no_rotary("gpt_neo", NOT_ROTARY["gpt2"])
    if name in KNOWN:
        return data, name, KNOWN[name]
    if name in NOT_ROTARY:
        raise no_rotary(name, NOT_ROTARY[name])
    if name in UNREADABLE:
        reason = UNREADABLE[name]
        raise ValueError(f"model_type {name!r} cannot be read: {reason}; describe what you need with RotarySpec")
    if not name:
        raise ValueError(
            f"model_type{where} is missing, and architectures {data.get('architectures')!r} is not known: pair layout "
            "and defaults cannot be guessed; add model_type, or describe the encoding with RotarySpec yourself"
        )
    raise ValueError(
        f"model_type{where} {name!r} is not known: pair layout and defaults cannot be guessed{near(name, KNOWN)}; "
        "describe the encoding with RotarySpec yourself"
    )
