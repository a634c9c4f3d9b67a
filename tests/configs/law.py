"""The law of keys: one key of one level of one config gets one value; a number names type, level, key and value.

The law: what is read then is what the model's own code makes of it, and every key about positions that has no effect is
in the account; else it is refused, for a reason that is true (`refusals`).
"""

import copy
import json
import re
from functools import cache
from random import Random
from typing import Any

from confused import INSIDE, ROPE, ROTARY, SCHEMES, short
from mutate import Config, Level, Mutant, levels
from vocabulary import WORDS, declared, read_by_code, taken, words_of_all

from conformance.walk import ARGUMENTS, default_config, model_types
from phasor import ModelRotary
from phasor.models.reading.composite import SETTINGS

ABSENT = object()
VALUES = (ABSENT, None, False, True, 0, 1, 1.0, {}, [])
WRONG_TYPES = ("4", "foo", [1], {"a": 1}, -1, 0.5)
# Keys that must stand in the account wherever a part that rotates has them.
ABOUT = re.compile(
    r"(?<!p)rope|rotary|theta|nope|alibi|yarn|(^|_)ntk|base_freq|kv_channels|^head_dim$|^layer_types$|mscale|logn"
)
UNKNOWN = ("rope_foo", "my_rotary", "foo", "theta_2", "no_such_key")


def law_mutant(number: int) -> Mutant:
    """The mutant with this number."""
    random = Random(f"law {number}")
    name = random.choice(sorted(model_types()))
    data = base(name, random)
    level = random.choice(levels(data))
    place = _place(random, level)
    key, meant = _key(random, level, place)
    value = random.choice((*VALUES, random.choice(WRONG_TYPES), meant))
    before = json.dumps(data)
    if value is ABSENT:
        place.data.pop(key, None)
    else:
        place.data[key] = copy.deepcopy(value)
    said = "left out" if value is ABSENT else f"= {short(value)}"
    done = "" if json.dumps(data) == before else f"{place.path}{key} {said}"
    return Mutant(number, name, data, done)


def base(name: str, random: Random) -> Config:
    """The default config of a type, whole or with some of its keys, in one case of three with a scaling."""
    whole = json.loads(json.dumps(default_config(name).to_dict(), default=str))
    data = _some_of(whole, random, random.choice((0.0, 0.5, 1.0)))
    if random.random() < 1 / 3:
        level = random.choice(levels(data))
        word = random.choice(sorted(SCHEMES))
        level.data[random.choice(ROPE)] = {"rope_type": word, "rope_theta": 1e4, **copy.deepcopy(SCHEMES[word])}
    return data


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


def _place(random: Random, level: Level) -> Level:
    """The level itself, its rope parameters, or those of one type of its layers; made where there are none."""
    if random.random() < 0.5:
        return level
    key = level.rope or random.choice(ROPE)
    rope = level.data.setdefault(key, {})
    if not isinstance(rope, dict):
        rope = level.data[key] = {}
    kinds = [kind for kind, value in rope.items() if isinstance(value, dict)]
    types = level.data.get("layer_types")
    if not kinds and not rope and isinstance(types, list) and random.random() < 0.3:
        kinds = sorted({kind for kind in types if isinstance(kind, str)})
        rope |= {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in kinds}
    if kinds and random.random() < 0.8:
        kind = random.choice(kinds)
        return Level(f"{level.path}{key}.{kind}.", rope[kind])
    return Level(f"{level.path}{key}.", rope)


def _key(random: Random, level: Level, place: Level) -> tuple[str, Any]:
    """A key and the value that it might be meant to have: one that is there, known, foreign, unknown or misspelt."""
    inside = place.path != level.path
    there = [key for key in place.data if inside or WORDS.search(key)]
    of_class = sorted(INSIDE) if inside else sorted(_of_class(str(level.data.get("model_type"))))
    pools = (there or of_class, there or of_class, of_class, [w for w in words_of_all() if ROTARY.search(w)], UNKNOWN)
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


@cache
def _of_class(model_type: str) -> tuple[str, ...]:
    """The keys that a config class declares or takes, and that its model's code reads."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        cls = CONFIG_MAPPING[model_type]
    except KeyError:
        return ("rope_theta", "head_dim")
    names = {*declared(cls), *taken(cls), *read_by_code(cls.__name__, cls.__module__)}
    return tuple(sorted(names | {"rope_theta", "head_dim", "partial_rotary_factor"}))


def unaccounted(one: Mutant, parts: dict[str, ModelRotary | str]) -> str:
    """The key of the mutant if it is about positions, was read by a part that rotates, and is in no account."""
    path, _, said = one.done.partition(" ")
    if said in ("", "left out", "= None") or not any(_owns(where, path, model) for where, model in parts.items()):
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
