"""Which keys of a config are changed, one after the other, and to what: those that its model's code read."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from phasor.models.reading.keys import about_positions

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 1024},
    "llama3": {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024,
    },
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 1024},
}  # fmt: skip
ROPE = "rope_parameters"
HEADS, KEY_HEADS = "num_attention_heads", "num_key_value_heads"
SIZES = (KEY_HEADS, "max_position_embeddings")
NEVER = ("model_type", "hidden_size", "num_hidden_layers", HEADS)
TYPES = ("rope_type", "type")


def changes(default: Mapping[str, Any], reads: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each change in words, and the keys that it puts over the barest config.

    ``default``: what the class makes of the barest config, with all of its defaults; ``reads``: the paths of the keys
    that the code of its model read.

    >>> [name for name, _ in changes({"head_dim": 8, "x": 1}, ["head_dim", "x"])]
    ['head_dim 16']
    """
    read = list(reads)
    for key in read:
        value = default.get(key)
        if "." in key or key in NEVER or not (about_positions(key) or key in SIZES) or isinstance(value, Mapping):
            continue
        for other in _others(key, value):
            yield f"{key} {_short(other)}", {key: other}
    heads = {key: value // 2 for key in (HEADS, KEY_HEADS) if isinstance(value := default.get(key), int) and value > 1}
    if HEADS in heads and HEADS in read:
        yield f"{HEADS} {heads[HEADS]}", heads
    rope = default.get(ROPE)
    if isinstance(rope, Mapping) and rope and ROPE in read:
        yield from _of_rope(rope, read, default)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _others(key: str, value: Any) -> Iterator[Any]:
    """Other values of the same kind, that matter if anything does."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        if value > 1:
            yield value // 2 if key in SIZES else 2 * value
    elif isinstance(value, float):
        yield 2 * value if value > 1 or key.endswith("scaling") else value / 2
    elif isinstance(value, list) and value:
        if value != value[::-1]:
            yield value[::-1]
        kinds = dict.fromkeys(map(_hashable, value))
        if isinstance(value[0], str) and len(kinds) > 1:
            yield from ([kind] * len(value) for kind in kinds)
        if set(kinds) <= {0, 1}:
            yield [1 - v for v in value]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _of_rope(
    rope: Mapping[str, Any], read: list[str], default: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parameters one by one, and every scaling of transformers; for kinds of layers with their own, one by one."""
    kinds = [kind for kind, value in rope.items() if isinstance(value, Mapping)]
    for kind in kinds or [""]:
        own: Mapping[str, Any] = rope[kind] if kind else rope
        for name, other in _parameters(own, any(key.endswith("rope_type") for key in read), default):
            whole = copy.deepcopy(dict(rope))
            whole |= {kind: other} if kind else other
            where = f"{ROPE}.{kind}" if kind else ROPE
            yield f"{where} {name}", {ROPE: whole if kind else other}


def _parameters(
    own: Mapping[str, Any], scaled: bool, default: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    plain = copy.deepcopy(dict(own))
    for key, value in own.items():
        if key not in TYPES:
            for other in _others(key, value):
                yield f"{key} {_short(other)}", {**plain, key: other}
    if not scaled:
        return
    bare = {key: value for key, value in plain.items() if key in ("rope_theta", "partial_rotary_factor")}
    bare |= {key: value for key, value in plain.items() if "section" in key or "interleaved" in key}
    for name, parameters in SCALINGS.items():
        more = {"long_factor": [4.0] * _pairs(default, own), "short_factor": [1.5] * _pairs(default, own)}
        yield name, {**bare, "rope_type": name, **parameters, **(more if name == "longrope" else {})}


def _pairs(default: Mapping[str, Any], own: Mapping[str, Any]) -> int:
    """How many pairs turn, as far as plain keys say."""
    width = default.get("qk_rope_head_dim") or default.get("head_dim")
    if not isinstance(width, int):
        width = default.get("hidden_size", 64) // max(default.get("num_attention_heads") or 1, 1)
    share = own.get("partial_rotary_factor") or default.get("partial_rotary_factor") or 1.0
    return max(int(width * (1.0 if default.get("qk_rope_head_dim") else share)) // 2, 1)
