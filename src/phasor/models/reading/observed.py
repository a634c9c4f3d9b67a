"""A model type that no row knows, but the installed transformers: its class is built small, and the model observed.

Only code of the installed transformers runs; nothing of the folder that the config came from, and nothing is loaded.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...rotary.model_rotary import ModelRotary
from .keys import Keys, about_positions, is_neutral, is_number, slip_of
from .refusal import Reason, Refused, unread
from .row import NoRotary

if TYPE_CHECKING:
    from ...eye import Observation
    from ...eye.tiny import Tiny

QUERY_HEADS = re.compile(r"(^|_)(num_attention_heads|n_heads?|num_heads)$")
KEY_HEADS = re.compile(r"(num_key_value_heads|num_kv_heads|n_kv_heads|n_head_kv)$")


def read_by_observing(name: str, data: Mapping[str, Any], path: str) -> tuple[ModelRotary, Keys] | None:
    """What a small model of this config was seen to rotate, and its keys; None where no class is installed for it.

    Raises `NoRotary` where nothing was seen to rotate, and `Refused` where the class refuses the config, where what
    rotates could not be described, and for a key that is one letter off one that the model's code read.
    """
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        return None
    if name not in CONFIG_MAPPING:
        return None
    try:
        model, sources, read, known = _observed(name, json.dumps(data, sort_keys=True, default=str))
    except NoRotary:
        raise
    except ValueError as error:
        said = f"model_type{f' of {path}' if path else ''} {name!r} has no row, and was not observed: {error}"
        raise Refused(said, Reason.BEYOND, f"{path}.model_type") from error
    keys = Keys([(f"{path}." if path else "", dict(data))])
    keys.sources.update({keys.path + key: word for key, word in sources.items()})
    _account(name, keys, data, read, known)
    return model, keys


@lru_cache(maxsize=64)
def _observed(name: str, text: str) -> tuple[ModelRotary, dict[str, str], frozenset[str], frozenset[str]]:
    """The encoding of the real model, the origin of its facts, the keys that its code read, and those its class has."""
    import transformers

    data = {**json.loads(text), "model_type": name}
    found = seen_small(data)
    seen, read, tiny = found.observation, found.reads, found.tiny
    small = seen.rotary
    version = f"transformers {transformers.__version__}"
    if small is None:
        if not seen.nothing_turns:
            raise ValueError("; ".join(seen.missing) or "its rotation could not be described")
        instead = seen.instead.describe()
        instead = instead and f"; {instead}"
        raise NoRotary(f"{name} rotates nothing in its attention, seen on a small model of {version}{instead}")
    sources = {"model_type": f"no row: observed on a small model that {version} builds of this config"}
    unexplained = [key for key, value in _stated(data) if key in read and not _explained(value, small)]
    notes = [f"its code read {key}, which nothing that was seen explains" for key in unexplained]
    known = frozenset(inspect.signature(type(tiny.config)).parameters)
    return replace(large_as(found, data, small), notes=(*small.notes, *notes)), sources, read, known


@dataclass(frozen=True, eq=False)
class SeenSmall:
    """What was observed of a small model, and the keys of its config that its code read."""

    tiny: "Tiny"
    observation: "Observation"
    reads: frozenset[str]


def seen_small(data: dict[str, Any]) -> SeenSmall:
    """A small model of a config, observed. Raises ``ValueError`` where transformers builds none, or it does not run."""
    from ...eye import observe
    from ...eye.tiny import recorded_reads, tiny_config, tiny_model

    tiny = tiny_config(data)
    with recorded_reads() as reads:
        seen = observe(tiny_model(tiny.config))
    return SeenSmall(tiny, seen, frozenset(reads.of(tiny.config)))


def large_as(found: SeenSmall, data: Mapping[str, Any], small: ModelRotary) -> ModelRotary:
    """The encoding of all layers of the real model, from that of the small one, which has one of every kind."""
    layers, changed = found.tiny.layers, found.tiny.changed
    stands = next((s for s in layers.values() if max(s, default=-1) + 1 == len(small.layers)), None)
    order = range(len(small.layers)) if stands is None else stands
    kinds = data.get("layer_types")
    words = kinds if isinstance(kinds, list) and len(kinds) == len(order) else small.layer_types[:1] * len(order)

    def real(pattern: re.Pattern[str], mine: int) -> int:
        olds = {key: old for key, (old, new) in changed.items() if pattern.search(key) and new == mine}
        whole = [key for key, old in olds.items() if isinstance(old, int)]
        return int(olds[min(whole, key=lambda key: key.count("."))]) if whole else mine  # its own before a part's

    kv_heads = real(KEY_HEADS, small.num_kv_heads)
    heads = real(QUERY_HEADS, small.num_heads)
    own = small.num_kv_heads == small.num_heads > 1 and kv_heads == small.num_kv_heads  # each query has keys of its own
    return replace(
        small,
        layers=tuple(small.layers[i] for i in order),
        layer_types=tuple(map(str, words)),
        temperatures=tuple(small.temperatures[i] for i in order) if small.temperatures else (),
        num_heads=heads,
        num_kv_heads=heads if own else kv_heads,
    )


def _stated(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Keys about positions with a value that asks for something, by their paths."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _stated(value, f"{path}{key}.")
        elif isinstance(key, str) and (about_positions(key) or path.startswith("rope_")) and not is_neutral(value):
            yield f"{path}{key}", value


def _explained(value: Any, model: ModelRotary) -> bool:
    """Whether a value is one of the numbers, words or lists of what was seen."""
    seen: list[Any] = [model.max_position, model.num_heads, model.num_kv_heads, model.prefix_tokens]
    for spec in model.distinct:
        seen += [spec.to_dict(), spec.rotary_dim / spec.head_dim, spec.head_dim - spec.rotary_dim]
    known = set(_numbers(seen))
    if isinstance(value, list) and not all(isinstance(item, int | float) for item in value):
        return True  # kinds of layers: each was built
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str | bool) or f"{item:.10g}" in known for item in items)


def _numbers(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)
    elif is_number(value):
        yield f"{value:.10g}"


def _account(name: str, keys: Keys, data: Mapping[str, Any], read: frozenset[str], names: frozenset[str]) -> None:
    """What became of each key about positions: read, or ignored because no code reads it; a near name is refused."""
    known = {key.rpartition(".")[2] for key in read}
    for key, value in _stated(data):
        short = key.rpartition(".")[2]
        if key in read or short in known:
            keys.sources.setdefault(keys.path + key, f"read by the code of {name}, and observed")
        elif short not in names and (meant := slip_of(short, sorted(known | names))):
            why = f"the code of {name} does not read it"
            raise unread(keys.path + key, value, why, f"did you mean {meant}?")
        else:
            keys.sources[keys.path + key] = f"no effect: the code of {name} never reads it"
    keys.used.update(data)
