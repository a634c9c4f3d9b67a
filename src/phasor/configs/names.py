"""What family a part belongs to, under which of its many names."""

from typing import Any

from .families import FAMILIES
from .keys import near
from .others import ALIASES, ARCHITECTURES, REMOTE, UNREADABLE
from .towers import TOWERS, UNREADABLE_TOWERS, tower_of
from .without import NOT_ROTARY, no_rotary

KNOWN = {**FAMILIES, **REMOTE}
Parts = dict[str, dict[str, Any]]
OWN_NAMES = (FAMILIES, TOWERS, UNREADABLE, UNREADABLE_TOWERS, NOT_ROTARY)
MINICPMV = {2.6: "qwen2", 4.0: "llama"}  # version -> language model
NOT_TEXT = ("vision", "visual", "audio", "image")
MAY_BE_SHORT = ("text_config", "llm_config", "language_config")  # a text model whatever its config says of itself


def name_of(config: dict[str, Any], parts: Parts, path: str) -> str:
    """The name of a part's family: its model_type, else its architecture, else what its parent makes of it."""
    above, _, key = path.rpartition(".")
    data, parent = (parts[path], parts.get(above, {}) if above else config) if path else (config, {})
    if (tower := tower_of(data, path, parent)) is not None:
        return tower
    stated = stated_name(data)
    if any(word in key for word in NOT_TEXT):
        return stated
    if stated:
        return _text_name(stated, data)
    if key in ("text_config", "llm_config"):
        above_name = stated_name(parent)
        return "llama" if above_name.startswith("llava") else f"{above_name}_text"
    return key if key in NOT_ROTARY else ""


def stated_name(data: dict[str, Any]) -> str:
    """What a config calls itself."""
    for value in (data.get("model_type"), data.get("model")):
        if isinstance(value, str) and value:
            return value
    architectures = data.get("architectures")
    for name in architectures if isinstance(architectures, list) else ():
        if isinstance(name, str) and name in ARCHITECTURES:
            return ARCHITECTURES[name]
    return ""


def _text_name(name: str, data: dict[str, Any]) -> str:
    name = ALIASES.get(name, name)
    if name == "minicpmv":
        version = data.get("version")
        if not isinstance(version, int | float) or version not in MINICPMV:
            raise ValueError(f"version must say which language model this minicpmv holds (2.6 or 4.0), got {version!r}")
        return MINICPMV[version]
    known = name in KNOWN or name in TOWERS
    if not known and (f"{name}_text" in KNOWN or f"{name}_text" in UNREADABLE):
        return f"{name}_text"
    return name


def is_readable(config: dict[str, Any], parts: Parts, path: str) -> bool:
    """Whether the part is of a family that rotates."""
    try:
        name = name_of(config, parts, path)
    except ValueError:
        return False
    return name in KNOWN or name in TOWERS


def has_own(data: dict[str, Any]) -> bool:
    """Whether a config is by its own name one that has something to say, whatever parts it holds."""
    name = data.get("model_type")
    return isinstance(name, str) and any(name in names for names in OWN_NAMES)


def held_by_frame(config: dict[str, Any], parts: Parts, path: str) -> list[str]:
    """The parts inside a config that is nothing but a frame around them; empty for any other."""
    data = parts[path] if path else config
    inside = [p for p in parts if not path or p.startswith(f"{path}.")]
    sized = not any(f"{path}.{key}".lstrip(".") in parts for key in MAY_BE_SHORT)
    sized = sized and any(name in data for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    return [] if has_own(data) or (sized and is_readable(config, parts, path)) else inside


def refused(name: str, data: dict[str, Any], path: str) -> ValueError | None:
    """Why a part of this name is not read, whatever its keys say; None for a name that is not known."""
    where = f" of {path}" if path else ""
    if name in NOT_ROTARY:
        return no_rotary(name, NOT_ROTARY[name])
    for reasons in (UNREADABLE, UNREADABLE_TOWERS):
        if name in reasons:
            return ValueError(
                f"model_type {name!r} cannot be read: {reasons[name]}; describe what you need with RotarySpec"
            )
    if not name:
        return ValueError(
            f"model_type{where} is missing, and architectures {data.get('architectures')!r} is not known: pair layout "
            "and defaults cannot be guessed; add model_type, or describe the encoding with RotarySpec yourself"
        )
    if any(word in path.rpartition(".")[2] for word in NOT_TEXT):
        return ValueError(
            f"model_type{where} {name!r} is not known: pair layout and axes cannot be guessed"
            f"{near(name, [*KNOWN, *TOWERS])}; describe the encoding with RotarySpec yourself"
        )
    return None
