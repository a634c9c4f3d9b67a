"""One random change of a config, with a line that says what was done: a typo, a moved key, a foreign one, ...

Every mutant is a function of its seed and of the config, so a number is all that a report must name.
"""

import copy
import json
from random import Random
from typing import Any, NamedTuple

from confused import INSIDE, ROPE, ROTARY, SWITCHES, SYNONYMS, WRONG, is_number, near, scheme, short, typo
from vocabulary import WORDS

Config = dict[str, Any]


class Level(NamedTuple):
    """One dictionary inside a config."""

    path: str
    data: Config

    @property
    def rope(self) -> str | None:
        """The key of rope parameters that are an object here."""
        return next((key for key in ROPE if isinstance(self.data.get(key), dict)), None)

    def keys(self) -> list[str]:
        return [key for key in self.data if isinstance(key, str) and WORDS.search(key)]


class Mutant(NamedTuple):
    number: int
    name: str
    data: Config
    done: str


def mutant(number: int, bases: dict[str, Config], known: dict[str, list[Any]]) -> Mutant:
    """The mutant with this number: of one of the configs, changed once, or twice in one case of four.

    ``known``: key -> values that configs give it, for keys that are foreign to the config.
    """
    random = Random(f"mutant {number}")
    name = random.choice(sorted(bases))
    data = copy.deepcopy(bases[name])
    done: list[str] = []
    while len(done) < random.choice((1, 1, 1, 2)):
        before = json.dumps(data, default=str)
        what = random.choice(KINDS)(random, random.choice(levels(data)), known)
        if what and json.dumps(data, default=str) != before:
            done.append(what)
    return Mutant(number, name, data, "; ".join(done))


def levels(data: Config, path: str = "") -> list[Level]:
    """The config, and the configs of its parts."""
    found = [Level(path, data)]
    for key, value in data.items():
        if isinstance(value, dict) and (key.endswith("_config") or key in ("encoder", "decoder")):
            found += levels(value, f"{path}{key}.")
    return found


def rename(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    inner = _inside(random, level)
    keys = _changeable(inner, level)
    if not keys:
        return ""
    old = random.choice(keys)
    group = next((group for group in SYNONYMS if old in group), ())
    new = random.choice([name for name in group if name != old] or [typo(random, old)])
    if random.random() < 0.4:
        new = typo(random, old)
    if new in inner.data:
        return ""
    inner.data[new] = inner.data.pop(old)
    return f"{inner.path}{old} renamed to {new}"


def move(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    places = [level, *_ropes(level), *(Level(x.path, x.data) for x in levels(level.data, level.path)[1:])]
    old, new = random.choice(places), random.choice(places)
    names = [k for k in (old.data if old.path.rstrip(".").endswith(ROPE) else old.keys()) if k not in new.data]
    if old.path == new.path or not names:
        return ""
    key = random.choice(names)
    if old.data[key] is new.data:
        return ""
    new.data[key] = old.data.pop(key) if random.random() < 0.7 else copy.deepcopy(old.data[key])
    return f"{old.path}{key} {'copied' if key in old.data else 'moved'} to {new.path or 'the top'}"


def delete(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    inner = _inside(random, level)
    keys = _changeable(inner, level)
    if not keys:
        return ""
    key = random.choice(keys)
    del inner.data[key]
    return f"{inner.path}{key} deleted"


def double(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    """One thing said twice, the same way or not: two dictionaries, two layer types, two names, two places."""
    kinds = [_two_ropes, _per_type, _two_names, _inside_too, _no_longer_inside]
    return random.choice(kinds)(random, level)


def _two_ropes(random: Random, level: Level) -> str:
    have = level.rope
    other = ROPE[1 - ROPE.index(have)] if have else random.choice(ROPE)
    if level.data.get(other) is not None and have:
        return ""
    level.data[other] = copy.deepcopy(level.data[have]) if have else scheme(random)
    said = f"{level.path}{other} beside {have}" if have else f"{level.path}{other} = {level.data[other]}"
    if random.random() < 0.6:
        level.data[other] |= scheme(random)
        said += f", = {short(level.data[other])}"
    return said


def _per_type(random: Random, level: Level) -> str:
    have = level.rope or random.choice(ROPE)
    flat = level.data.get(have) if level.rope else {"rope_type": "default"}
    types = level.data.get("layer_types")
    kinds = sorted({t for t in types if isinstance(t, str)}) if isinstance(types, list) else []
    kinds = kinds if kinds and random.random() < 0.7 else ["full_attention", "sliding_attention"]
    if not isinstance(flat, dict) or any(isinstance(v, dict) for v in flat.values()):
        return _flat(random, level, have)
    level.data[have] = {kind: copy.deepcopy(flat) for kind in kinds}
    if random.random() < 0.6:
        level.data[have][random.choice(kinds)] |= scheme(random)
    if random.random() < 0.2:
        level.data[have] |= {"rope_theta": 77.0}
    if random.random() < 0.2:
        level.data[have].pop(random.choice(kinds))
    return f"{level.path}{have} per layer type: {short(level.data[have])}"


def _flat(random: Random, level: Level, have: str) -> str:
    inner = [v for v in level.data[have].values() if isinstance(v, dict)]
    if not inner:
        return ""
    level.data[have] = copy.deepcopy(random.choice(inner))
    return f"{level.path}{have} flat: {short(level.data[have])}"


def _two_names(random: Random, level: Level) -> str:
    inner = _inside(random, level)
    pairs = [(old, new) for group in SYNONYMS for old in group for new in group if old in inner.data]
    pairs = [(old, new) for old, new in pairs if new not in inner.data]
    if not pairs:
        return ""
    old, new = random.choice(pairs)
    value = copy.deepcopy(inner.data[old])
    inner.data[new] = value if random.random() < 0.4 else near(random, value)
    return f"{inner.path}{new} = {short(inner.data[new])} beside {old}"


def _inside_too(random: Random, level: Level) -> str:
    """What stands at the top, in the rope parameters as well."""
    ropes = _ropes(level)
    shared = [k for k in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings",
                          "max_position_embeddings", "head_dim") if k in level.data]  # fmt: skip
    if not ropes or not shared:
        return ""
    key, into = random.choice(shared), random.choice(ropes)
    into.data[key] = level.data[key] if random.random() < 0.4 else near(random, level.data[key])
    return f"{into.path}{key} = {short(into.data[key])} beside {level.path}{key}"


def _no_longer_inside(random: Random, level: Level) -> str:
    """What stands in the rope parameters, at the top as well."""
    ropes = [one for one in _ropes(level) if one.data]
    if not ropes:
        return ""
    into = random.choice(ropes)
    key = random.choice(list(into.data))
    if key in level.data:
        return ""
    level.data[key] = into.data[key] if random.random() < 0.4 else near(random, into.data[key])
    return f"{level.path}{key} = {short(level.data[key])} beside {into.path}{key}"


def mistype(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    inner = _inside(random, level)
    keys = _changeable(inner, level)
    if not keys:
        return ""
    key = random.choice(keys)
    value = inner.data[key]
    own = [str(value), [value], {"value": value}] + ([-value, float(value)] if is_number(value) else [])
    new = random.choice([*own, *WRONG, *WRONG])
    if isinstance(value, list) and value and random.random() < 0.5:
        new = copy.deepcopy(value)
        new[random.randrange(len(new))] = random.choice(WRONG)
    inner.data[key] = new
    return f"{inner.path}{key} = {short(new)}"


def foreign(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    ropes = _ropes(level)
    if ropes and random.random() < 0.3:
        into = random.choice(ropes)
        key = random.choice(sorted(INSIDE))
        value = random.choice(INSIDE[key])
    else:
        into = level
        names = SWITCHES if random.random() < 0.2 else sorted(n for n in known if ROTARY.search(n))
        key = random.choice(names if random.random() < 0.6 else sorted(known))
        value = random.choice(known.get(key, [True, False]))
    if key in into.data:
        return ""
    into.data[key] = copy.deepcopy(value)
    return f"{into.path}{key} = {short(value)} added"


def alter(random: Random, level: Level, known: dict[str, list[Any]]) -> str:
    """Another value of the same kind."""
    ropes = _ropes(level)
    if ropes and random.random() < 0.3:
        into = random.choice(ropes)
        new = scheme(random)
        if random.random() < 0.5:
            into.data.clear()
        into.data.update(new)
        return f"{into.path.rstrip('.')} = {short(into.data)}"
    inner = _inside(random, level)
    keys = _changeable(inner, level)
    if not keys:
        return ""
    key = random.choice(keys)
    inner.data[key] = near(random, inner.data[key])
    return f"{inner.path}{key} = {short(inner.data[key])}"


KINDS = (rename, rename, move, move, delete, double, double, mistype, foreign, foreign, alter, alter)


def _ropes(level: Level) -> list[Level]:
    """The dictionaries of rope parameters of a level, those of the layer types one by one."""
    found = []
    for key in ROPE:
        if isinstance(one := level.data.get(key), dict):
            inner = {k: v for k, v in one.items() if isinstance(v, dict)}
            found += [Level(f"{level.path}{key}.{k}.", v) for k, v in inner.items()]
            found.append(Level(f"{level.path}{key}.", one))
    return found


def _changeable(inner: Level, level: Level) -> list[str]:
    """What a mutant may touch: the keys about rotation of a config, all of its rope parameters."""
    return inner.keys() if inner.path == level.path else list(inner.data)


def _inside(random: Random, level: Level) -> Level:
    """The level, or in one case of three its rope parameters."""
    ropes = _ropes(level)
    return random.choice(ropes) if ropes and random.random() < 1 / 3 else level
