"""Which keys the sensitivity sweep puts where, and with which values: every name that anybody gives to positions."""

import copy
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "configs"))
from confused import INSIDE
from vocabulary import known, words_of_all

from .theirs import code_of
from .walk import ARGUMENTS, Place, default_config

Config = dict[str, Any]
# Names about rotation, the width of a head, kinds of layers and lengths; deliberately not phasor's own list.
ABOUT = re.compile(
    r"(?<!p)rope|rotary|rotate|theta|yarn|(^|_)ntk|alibi|nope|mscale|base_freq|freq_base|pos(ition)?(al)?_?(emb|enc|bias|id)"
    r"|max_position|n_positions|max_seq|seq_len|original_max|long_factor|short_factor|(^|_)factor$|(^|_)beta(_|$)|truncate"
    r"|section|partial|interleav|head_dim|head_size|d_head|kv_channels|layer_types|layers?_block_type|attn_type"
    r"|attention_type|layer_interval|attention_interval|sliding|window|temperature_tuning|floor_scale|attn_scale|neox"
    r"|logn|global_attn|_idxs|layer_indices|compress_r|hybrid|freq|xdrope|(^|_)alpha$",
    re.IGNORECASE,
)
NEVER = re.compile(r"_config$|^model_type$|token|^layer_idx$")
DICTS = ("rope_parameters", "rope_scaling")


class Level(NamedTuple):
    """One config inside another: where it stands (``()``: the whole), and the default config object of its class."""

    path: tuple[str, ...]
    config: Any

    def __str__(self) -> str:
        return ".".join(self.path)


class Change(NamedTuple):
    """What is put into a config: keys at a place inside the level, with others that they need; ``name``: for people."""

    place: tuple[str, ...]
    keys: Config
    needed: Config = {}  # noqa: RUF012 (nothing writes into it)
    name: str = ""

    def only(self, names: Iterable[str]) -> "Change":
        return self._replace(keys={name: self.keys[name] for name in names})

    @property
    def called(self) -> set[str]:
        return {self.name} if self.name else {".".join((*self.place, key)) for key in self.keys}

    def __str__(self) -> str:
        return f"{'.'.join(self.place)} {json.dumps(self.needed | self.keys, default=str)[:300]}".strip()


def skeleton(data: Config, turning: Iterable[str] = ()) -> Config:
    """A config that leaves everything to its classes: the types of its parts, and what they cannot do without.

    ``turning``: paths of parts that rotate, which stay although they do not say what they are.
    """
    kept: Config = {"model_type": data["model_type"]} if data.get("model_type") else {}
    for key, value in data.items():
        inner = [path.partition(".")[2] for path in turning if path.partition(".")[0] == key]
        if isinstance(value, dict) and (value.get("model_type") or inner):
            kept[key] = skeleton(value, inner)
    needed = ARGUMENTS.get(data.get("model_type", ""), {})
    return {**kept, **{k: v for k, v in copy.deepcopy(needed).items() if not isinstance(kept.get(k), dict)}}


def levels(model_type: str, turning: tuple[Place, ...], base: Config) -> Iterator[Level]:
    """The config itself, and each part that rotates and stands in it."""
    yield Level((), default_config(model_type))
    for place in turning:
        path = tuple(place.path.split(".")) if place.path else ()
        if path and isinstance(inside(base, path), dict):
            yield Level(path, place.config)


def inside(data: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


def changed(base: Config, level: Level, change: Change) -> Config:
    """A copy of the config with the change in it; dictionaries on the way are made."""
    data = copy.deepcopy(base)
    at = data
    for step in (*level.path, *change.place):
        if not isinstance(at.get(step), dict):
            at[step] = {}
        at = at[step]
    at.update(copy.deepcopy({**change.needed, **change.keys}))
    return data


@cache
def real_configs(folder: Path | None) -> tuple[Config, ...]:
    paths = sorted(folder.glob("configs/*/*.json")) if folder is not None else []
    return tuple(json.loads(path.read_text()) for path in paths)


@cache
def all_known(folder: Path | None) -> dict[str, list[Any]]:
    """Key -> values that configs give it, for every key about positions of a class or of a real config."""
    found = known(real_configs(folder))
    names = {*found, *words_of_all(), *INSIDE}
    return {n: INSIDE.get(n, found.get(n, [])) for n in sorted(names) if ABOUT.search(n) and not NEVER.search(n)}


def two_values(key: str, current: Any, values: list[Any]) -> tuple[Any, Any]:
    """Two values that are not the current one and would matter if they were read."""
    if isinstance(current, bool):
        return not current, current
    if isinstance(current, int):
        return 2 * current, max(current // 2, 1)
    if isinstance(current, float):
        return 2 * current, current / 2
    if isinstance(current, list) and current:
        return current[::-1], [current[0]] * len(current)
    usable = [v for v in values if v not in (None, current, 1.0, [], {}, "") and not isinstance(v, dict)]
    if all(isinstance(v, bool) for v in usable):
        usable = [True, False]
    return (*usable, 0.5, 64)[0], (*usable, 0.5, 64)[1]


@cache
def text_of(cls: type) -> str:
    """The source of a config class, its bases, and of the models built from it."""
    names = {base.__module__ for base in cls.__mro__ if ".models." in base.__module__}
    names |= {one.__module__ for found in code_of(cls.__name__) for one in found}
    names |= {name.replace("configuration_", "modeling_") for name in names}
    generic = ("transformers.modeling_rope_utils",)
    return "\n".join(inspect.getsource(sys.modules[n]) for n in (*sorted(names), *generic) if n in sys.modules)


def mentioned(level: Level, names: Iterable[str]) -> list[str]:
    """The keys that occur in the source of a level's class, or in what all classes share."""
    said = set(re.findall(r"\w+", text_of(type(level.config))))
    return [name for name in names if name in said]
