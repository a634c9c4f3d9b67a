"""The law of keys: a config with one mistake in it; a number names the config, the level, the key and what is done.

The law: what is read then is what the model's own code makes of it, and every key about positions that has no effect is
in the account; else it is refused, for a reason that is true (`refusals`).
"""

import copy
import json
import re
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from confused import INSIDE, ROPE, SCHEMES, SYNONYMS, near, short
from vocabulary import WORDS, kept

from conformance.walk import ARGUMENTS, default_config, model_types
from phasor import ModelRotary
from phasor.models.reading.composite import SETTINGS

Config = dict[str, Any]
ABSENT = object()
VALUES = (ABSENT, None, False, True, 0, 1, 1.0, {}, [])
WRONG_TYPES = ("4", "foo", [1], {"a": 1}, -1, 0.5, 1e300, 10**30)
# Keys that must stand in the account wherever a part that rotates has them.
ABOUT = re.compile(
    r"(?<!p)rope|rotary|theta|nope|alibi|yarn|(^|_)ntk|base_freq|kv_channels|^head_dim$|^layer_types$|mscale|logn"
)
UNKNOWN = ("rope_foo", "my_rotary", "foo", "theta_2", "no_such_key")


class Level(NamedTuple):
    """One dictionary inside a config."""

    path: str
    data: Config

    def keys(self) -> list[str]:
        """What a mutant may touch: the keys about rotation of a config, all of its rope parameters."""
        inside = any(f"{rope}." in self.path for rope in ROPE)
        return [key for key in self.data if inside or (isinstance(key, str) and WORDS.search(key))]


class Mutant(NamedTuple):
    number: int
    name: str
    data: Config
    done: str

    @property
    def of_one_value(self) -> bool:
        return " = " in self.done or self.done.endswith(" left out")


def mutant(number: int, bases: Mapping[str, Config] | None = None) -> Mutant:
    """The mutant with this number: of the default config of some type, or of one of ``bases``."""
    random = Random(f"law {number}")
    name = random.choice(sorted(bases or model_types()))
    data = copy.deepcopy(bases[name]) if bases else base(name, random)
    before = json.dumps(data)
    done = random.choice(KINDS)(random, random.choice(levels(data)))
    return Mutant(number, name, data, "" if json.dumps(data) == before else done)


def base(name: str, random: Random) -> Config:
    """The default config of a type, whole or with some of its keys, in one case of three with a scaling."""
    whole = json.loads(json.dumps(default_config(name).to_dict(), default=str))
    data = _some_of(whole, random, random.choice((0.0, 0.5, 1.0)))
    if random.random() < 1 / 3:
        random.choice(levels(data)).data[random.choice(ROPE)] = scheme(random)
    return data


def scheme(random: Random) -> Config:
    word = random.choice(sorted(SCHEMES))
    return {"rope_type": word, "rope_theta": 1e4, **copy.deepcopy(SCHEMES[word])}


def _some_of(config: Config, random: Random, share: float) -> Config:
    found = {}
    for key, value in config.items():
        if isinstance(value, dict) and (key.endswith("_config") or key in ("encoder", "decoder")):
            if key not in SETTINGS:
                found[key] = _some_of(value, random, share)
        elif key in ("model_type", *ARGUMENTS.get(config.get("model_type", ""), ())) or (
            WORDS.search(key) and value is not None and random.random() < share
        ):
            found[key] = value
    return found


def levels(data: Config, path: str = "") -> list[Level]:
    """The config, and the configs of its parts."""
    found = [Level(path, data)]
    for key, value in data.items():
        if isinstance(value, dict) and (key.endswith("_config") or key in ("encoder", "decoder")):
            found += levels(value, f"{path}{key}.")
    return found


def ropes(level: Level) -> list[Level]:
    """The dictionaries of rope parameters of a level, and those of the types of its layers one by one."""
    found = [Level(f"{level.path}{key}.", one) for key in ROPE if isinstance(one := level.data.get(key), dict)]
    inner = [Level(f"{at.path}{kind}.", one) for at in found for kind, one in at.data.items() if isinstance(one, dict)]
    return [*found, *inner]


# ---- What is done: each changes one level, and says so ----


def put(random: Random, level: Level) -> str:
    """One key of a level, or of its rope parameters, gets one value, or is left out."""
    place = _place(random, level)
    key, meant = _key(random, level, place)
    value = random.choice((*VALUES, random.choice(WRONG_TYPES), meant, near(random, meant)))
    if value is ABSENT:
        place.data.pop(key, None)
        return f"{place.path}{key} left out"
    place.data[key] = copy.deepcopy(value)
    return f"{place.path}{key} = {short(value)}"


def move(random: Random, level: Level) -> str:
    """A key goes to another place, or gets another name for the same notion; it may stay where it was as well."""
    places = [level, *ropes(level), *levels(level.data, level.path)[1:]]
    old, new = random.choice(places), random.choice(places)
    key = random.choice(old.keys() or [""])
    others = [name for group in SYNONYMS if key in group for name in group]
    name = key if old.path != new.path and random.random() < 0.7 else random.choice(others or [key])
    if name in new.data or key not in old.data or old.data[key] is new.data:
        return ""
    stays = random.random() < 0.5
    value = copy.deepcopy(old.data[key]) if stays else old.data.pop(key)
    new.data[name] = near(random, value) if stays and random.random() < 0.6 else value
    return f"{old.path}{key} {'copied' if stays else 'moved'} to {new.path}{name}: {short(new.data[name])}"


def two_ropes(random: Random, level: Level) -> str:
    """Two dictionaries of rope parameters, which say the same or not."""
    have = [key for key in ROPE if isinstance(level.data.get(key), dict)]
    if len(have) != 1:
        return ""
    other = ROPE[1 - ROPE.index(have[0])]
    level.data[other] = copy.deepcopy(level.data[have[0]]) | (scheme(random) if random.random() < 0.6 else {})
    return f"{level.path}{other} beside {have[0]}: {short(level.data[other])}"


def by_type(random: Random, level: Level) -> str:
    """Rope parameters of each type of layer for those of all, of which one is another or is missing; or the reverse."""
    key = random.choice([key for key in ROPE if isinstance(level.data.get(key), dict)] or ROPE)
    flat = level.data.get(key) or {"rope_type": "default"}
    if not isinstance(flat, dict):
        return ""
    if inner := [value for value in flat.values() if isinstance(value, dict)]:
        level.data[key] = copy.deepcopy(random.choice(inner))
        return f"{level.path}{key} flat: {short(level.data[key])}"
    types = level.data.get("layer_types")
    kinds = sorted({kind for kind in types if isinstance(kind, str)}) if isinstance(types, list) else []
    kinds = kinds if kinds and random.random() < 0.7 else ["full_attention", "sliding_attention"]
    level.data[key] = {kind: copy.deepcopy(flat) for kind in kinds}
    changed = random.choice(kinds)
    level.data[key][changed] |= scheme(random) if random.random() < 0.6 else {}
    if random.random() < 0.2:
        level.data[key].pop(random.choice(kinds))
    if random.random() < 0.2:
        level.data[key]["rope_theta"] = 77.0
    return f"{level.path}{key} by type of layer: {short(level.data[key])}"


KINDS = (put,) * 6 + (move,) * 2 + (two_ropes, by_type)


def _place(random: Random, level: Level) -> Level:
    """The level itself, its rope parameters, or those of one type of its layers; made where there are none."""
    if random.random() < 0.5:
        return level
    if not ropes(level):
        level.data[random.choice(ROPE)] = {}
    return random.choice(ropes(level))


def _key(random: Random, level: Level, place: Level) -> tuple[str, Any]:
    """A key and the value that it might be meant to have: one that is there, known, foreign, unknown or misspelt."""
    there, inside = place.keys(), place is not level
    of_class = (
        sorted(INSIDE) if inside else kept()["of_class"].get(level.data.get("model_type"), ["head_dim", "rope_theta"])
    )
    pools = (there or of_class, there or of_class, of_class, kept()["of_all"], UNKNOWN)
    key = random.choice(random.choice([pool for pool in pools if pool]))
    meant = place.data.get(key, random.choice(INSIDE.get(key, [0.5, 64])))
    if random.random() < 0.25:
        key = one_letter_off(random, key)
    return key, meant


def one_letter_off(random: Random, word: str) -> str:
    at = random.randrange(len(word))
    letter = random.choice("aeiost_")
    return random.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at:],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
        )
    )


def unaccounted(one: Mutant, parts: dict[str, ModelRotary | str]) -> str:
    """The key of a mutant of one value if it is about positions, is read by a part that rotates, and has no account."""
    path, _, said = one.done.partition(" ")
    if not one.of_one_value or said in ("left out", "= None") or not any(_owns(at, path, m) for at, m in parts.items()):
        return ""
    inside = any(f"{rope}." in path for rope in ROPE)
    if not inside and not ABOUT.search(path.rpartition(".")[2]):
        return ""
    accounts = [model.sources for model in parts.values() if isinstance(model, ModelRotary)]
    return "" if any(path in key for account in accounts for key in account) else path


def _owns(where: str, path: str, model: ModelRotary | str) -> bool:
    """Whether a part that rotates holds a key in its own dictionary or in its rope parameters."""
    if isinstance(model, str):
        return False
    rest = path.removeprefix(f"{where}.") if where else path
    steps = rest.split(".")
    return path.startswith(where) and (len(steps) == 1 or steps[0] in ROPE)
