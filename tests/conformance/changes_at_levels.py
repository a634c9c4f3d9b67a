"""The changes that the sensitivity sweep makes at one level of a config: keys beside and inside its rope parameters."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .changes_of_keys import DICTS, Change, Config, Level, all_known, inside, mentioned, two_values

from confused import INSIDE, SCHEMES  # isort: skip

THETA = {"rope_theta": 20_000.0}
CARRIERS: dict[str, Config] = {name: {"rope_type": name, **THETA, **SCHEMES[name]} for name in SCHEMES}
FULL = ("default", "yarn")  # schemes with which every key is tried
OWN_KEYS = {  # with the others their own; a part has a model type of its own, where this is done
    "linear": ("factor", "original_max_position_embeddings", "partial_rotary_factor"),
    "dynamic": ("factor", "original_max_position_embeddings", "alpha", "partial_rotary_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("factor", "attention_factor", "original_max_position_embeddings", "long_mscale", "short_mscale"),
    "proportional": ("factor", "partial_rotary_factor", "rope_theta"),
    "mrope": ("mrope_section",), "su": (), "ntk": ("factor",), "nonsense": (),
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 30_000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 30_000.0}
PLAIN = {"rope_type": "default", "rope_theta": 30_000.0}
PAIRS: tuple[tuple[Config, Config], ...] = (  # rope_scaling, rope_parameters
    (LINEAR, LINEAR), (LINEAR, PLAIN), (PLAIN, LINEAR), (YARN, PLAIN), (PLAIN, YARN), (LINEAR, YARN),
    ({"type": "linear", "factor": 2.0}, PLAIN), ({"rope_theta": 30_000.0}, {"rope_theta": 40_000.0}), ({}, LINEAR),
)  # fmt: skip
USUAL = ("full_attention", "sliding_attention")


def changes_at(level: Level, base: Config, number: int, folder: Path | None) -> Iterator[tuple[bool, Change]]:
    """The changes with the value of this number: whether each is made alone, and what it is."""
    known, stated, at = all_known(folder), level.config.to_dict(), inside(base, level.path)
    names = [n for n in known if n not in DICTS and not isinstance(stated.get(n), dict)]
    values = {n: two_values(n, at.get(n, stated.get(n)), known[n])[number] for n in names}
    alone = mentioned(level, names)
    yield from ((True, Change((), {n: values[n]})) for n in alone)
    yield False, Change((), {n: values[n] for n in names if n not in alone})
    rope = stated.get("rope_parameters")
    kinds = [k for k, v in rope.items() if isinstance(v, dict)] if isinstance(rope, dict) else []
    yield from _inside_dicts(level, kinds, number, known)
    for name, keys in OWN_KEYS.items():
        for key in () if level.path else ("", *keys):
            yield True, _carried(DICTS[number], key, number, CARRIERS[name], kinds)
    if number == 0:
        yield from ((True, change) for change in _pairs(kinds))


def _inside_dicts(
    level: Level, kinds: list[str], number: int, known: dict[str, list[Any]]
) -> Iterator[tuple[bool, Change]]:
    """The first value of each key stands beside no scaling, the second beside YaRN."""
    where, carrier = DICTS[number], CARRIERS[FULL[number]]
    said = mentioned(level, INSIDE)
    yield from ((True, _carried(where, key, number, carrier, kinds)) for key in said)
    rest = [n for n in known if n not in said and n not in DICTS and n not in carrier]
    if not kinds:
        yield False, Change((where,), {n: two_values(n, None, known[n])[number] for n in rest}, carrier)


def _carried(where: str, key: str, number: int, carrier: Config, kinds: list[str]) -> Change:
    """Rope parameters with one more key; where they stand under kinds of layers, those of one kind alone have it."""
    value = {key: two_values(key, None, INSIDE.get(key, [2.0, 3.0]))[number]} if key else {}
    name = key or carrier["rope_type"]
    if not kinds:
        return Change((where,), value, carrier, f"{where}.{name}")
    chosen = kinds[number % len(kinds)]
    each = {kind: carrier | value if kind == chosen else carrier for kind in kinds}
    return Change((), {where: each}, {}, f"{where}.{chosen}.{name}")


def _pairs(kinds: list[str]) -> Iterator[Change]:
    """Two dictionaries at once, flat and under kinds of layers, the same and not."""
    for one, other in PAIRS:
        yield Change((), {"rope_scaling": one, "rope_parameters": other}, {}, "two dictionaries")
        names = kinds or USUAL
        each = dict.fromkeys(names, other)
        yield Change((), {"rope_scaling": one, "rope_parameters": each}, {}, "two dictionaries")
        yield Change((), {"rope_scaling": each, "rope_parameters": one}, {}, "two dictionaries")
        yield Change((), {"rope_scaling": each, "rope_parameters": {**each, names[0]: one}}, {}, "two dictionaries")
        for kind in names:
            yield Change((), {"rope_parameters": {**each, kind: one}}, {}, f"rope_parameters.{kind}")
