"""Composite configs: which models are inside, and which one is the text model."""

from typing import Any

from .indexers import INDEXER, has_indexer
from .keys import near
from .names import KNOWN, MAY_BE_SHORT, Parts, held_by_frame, is_readable, name_of
from .towers import INNER

TEXT_PARTS = (
    "text_config", "llm_config", "language_config", "thinker_config.text_config", "decoder", "thinker_config",
    "vlm_config.text_config", "global_config", "decoder_config",
)  # fmt: skip
CHECKED = (*TEXT_PARTS[:6], *MAY_BE_SHORT)  # must be an object where it stands
SETTINGS = (
    "quantization_config", "compression_config", "generation_config", "auto_map", "task_specific_params",
    "per_layer_config", "slice_config",
)  # fmt: skip
MODELS = ("encoder", "decoder", "atom_encoder")  # keys of models that do not end in _config


def parts_of(config: dict[str, Any], prefix: str = "", depth: int = 0) -> Parts:
    """Dotted path -> config of every model inside a composite config."""
    found: Parts = {}
    for key, value in config.items():
        if not isinstance(key, str) or key in SETTINGS or depth > 8:
            continue
        is_text = prefix + key in CHECKED or key == "text_config"
        if is_text and not isinstance(value, dict | None):
            raise ValueError(
                f"{prefix}{key} must be an object of keys, the config of the text model, got {value!r:.80}"
            )
        if not isinstance(value, dict):
            continue
        inside = parts_of(value, f"{prefix}{key}.", depth + 1)
        if not key.endswith("_config") and key not in MODELS:
            found.update(inside)
            continue
        stated = value.get("model_type") or any(n in value for n in ("hidden_size", "num_hidden_layers", "d_model"))
        if stated or inside or (value and key in MAY_BE_SHORT):
            found[prefix + key] = value
        found.update(inside)
    return found


def inner_parts(config: dict[str, Any], parts: Parts) -> dict[str, str]:
    """Path -> path of the config that describes it, of parts that have none of their own: indexers and such."""
    found = {}
    for path in ("", *parts):
        if is_readable(config, parts, path) and not held_by_frame(config, parts, path):
            name = name_of(config, parts, path)
            own = [INDEXER] if has_indexer(name, parts[path] if path else config) else []
            found.update({f"{path}.{inner}".lstrip("."): path for inner in (*own, *INNER.get(name, ()))})
    return found


def choose(config: dict[str, Any], parts: Parts, inner: dict[str, str], part: str | None) -> str:
    """The path of the part to read; ``""`` for the config itself."""
    if part is None:
        return _text_part(config, parts)
    known = [*parts, *inner]
    if not known and part != "":
        raise ValueError(f"part must be left out, because this config has no parts, got {part!r}")
    if not isinstance(part, str) or (part and part not in known):
        raise ValueError(f"part must be one of {sorted(known)}, got {part!r}{near(str(part), known)}")
    return part


def _text_part(config: dict[str, Any], parts: Parts) -> str:
    """The text model; without one the config itself, or the first part that can be read."""
    readable = [p for p in parts if is_readable(config, parts, p) and not held_by_frame(config, parts, p)]
    texts = [path for path in TEXT_PARTS if path in parts]
    for path in (*(p for p in texts if p in readable), *texts):
        return path
    if is_readable(config, parts, "") or not readable:
        return ""
    family = [path for path in readable if name_of(config, parts, path) in KNOWN]
    return (family or readable)[0]


def others_that_rotate(config: dict[str, Any], parts: Parts, path: str) -> str:
    """For an error: what else could be read."""
    readable = [
        p for p in ("", *parts) if p != path and is_readable(config, parts, p) and not held_by_frame(config, parts, p)
    ]
    return f"; other parts may rotate: part={', part='.join(map(repr, readable))}" if readable else ""
