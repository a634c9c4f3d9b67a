"""What a config in transformers' keys says of a plain Llama: all that the formats of others have a place for."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .names import TIED

FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
LENGTH = 2048  # positions, where a config says nothing
# the scheme of Llama 3.1 and 3.2, which differ in its factor (meta-llama/llama-models, apply_scaling)
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip


def needed(path: Path, config: Mapping[str, Any], key: str) -> Any:
    """A value that must stand in the config; ``ValueError`` if it is left to the class of transformers."""
    if config.get(key) is None:
        raise ValueError(f"{path}: {key} is missing in its config, and the format must say it; add it to config.json")
    return config[key]


def rope_of(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Base, name of the scheme and its fields, wherever they stand: inside a dictionary, or at the top.

    >>> rope_of(Path("model"), {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    {'rope_theta': 500000.0, 'rope_type': 'linear', 'factor': 2.0}
    >>> rope_of(Path("model"), {"rope_parameters": {"rope_theta": 5e5}})
    {'rope_theta': 500000.0, 'rope_type': 'default'}
    """
    said = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    base = needed(path, {"rope_theta": config.get("rope_theta"), **said}, "rope_theta")
    scheme = said.get("rope_type", said.get("type", "default"))
    fields = {key: value for key, value in said.items() if key not in ("rope_theta", "rope_type", "type")}
    return {"rope_theta": base, "rope_type": scheme, **fields}


def is_llama3(rope: Mapping[str, Any]) -> bool:
    """Whether what `rope_of` found is exactly the scheme of Llama 3, with any factor.

    >>> is_llama3({**LLAMA3, "factor": 8.0}), is_llama3({**LLAMA3, "factor": 8.0, "high_freq_factor": 1.0})
    (True, False)
    """
    return LLAMA3.items() <= rope.items()


def check_plain(
    path: Path, config: Mapping[str, Any], tensors: Iterable[str], wanted: Iterable[str], types: tuple[str, ...]
) -> None:
    """Raises ``ValueError`` for a model with something that the formats of a plain Llama have no place for."""
    name = config.get("model_type")
    if name not in types:
        raise ValueError(f"{path}: model_type must be one of {', '.join(types)} for this format, got {name!r}")
    check_fixed(path, config, FIXED)
    there, asked = set(tensors), set(wanted)
    if more := sorted(there - asked):
        raise ValueError(f"{path}: {more[0]}: has no place in this format; remove it first")
    if lost := sorted(asked - there - {TIED}):
        raise ValueError(f"{path}: {lost[0]}: must be there, and is not")


def check_fixed(path: Path, config: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raises ``ValueError`` where the config asks for another value than the one that the format's code has."""
    for key in keys:
        if config.get(key) not in (None, FIXED[key]):
            raise ValueError(f"{path}: {key} must be {FIXED[key]!r} for this format, got {config[key]!r:.80}")
