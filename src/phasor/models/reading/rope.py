"""Where the rope parameters stand: one dictionary for all layers, or one per kind of layer; in old names and new."""

from typing import Any

from ...support.checks import whole
from .keys import Keys, is_dict
from .schemes import ORIGINAL, TYPES
from .spec_fields import Reader
from .text_row import Facts


def rope_levels(reader: Reader, needed: set[str]) -> dict[str, Keys | None]:
    """The rope parameters of each kind of layer, under ``""`` where all share them; None: the config says null.

    ``needed``: the kinds of the layers that rotate, each of which a dictionary that names kinds must name.

    Two dictionaries are merged only where they say the same: the code of most families takes one of them whole.
    """
    keys, kinds = reader.keys, reader.facts.kinds
    found = keys.found(*reader.facts.dicts)
    for path, value in found:
        is_dict(path, value)
        Keys([(f"{path}.", value)], {})  # its keys are words
    places = [(f"{path}.", value) for path, value in found if value]
    if not kinds:
        _must_agree(reader, "", places)
        return {"": Keys(places, keys.sources)}
    nested = [(path, data) for path, data in places if any(kind in data for kind in kinds)]
    flat = [(path, data) for path, data in places if not any(kind in data for kind in kinds)]
    for path, data in nested:
        if reader.facts.fills and path.removeprefix(reader.path) != "rope_parameters.":
            raise ValueError(
                f"{path.rstrip('.')} must not name types of layers: the code of {reader.model_type} looks for them in "
                "rope_parameters; move them there"
            )
        if missing := sorted(needed - data.keys()) if not reader.facts.fills else []:
            raise ValueError(
                f"{path}{missing[0]} is missing: the dictionary names other kinds of layers, and what the code of "
                f"{reader.model_type} makes of these is not its default; add their parameters"
            )
        _refuse_beside(reader, path, data)
    levels = {kind: _level(reader, nested, kind) for kind in kinds}
    for path, data in flat:
        for kind in _held_by(reader, path, data):
            level, inside = Keys([(path, data)], keys.sources), levels[kind]
            both = [*(inside.places if inside is not None else ()), *level.places]
            _must_agree(reader, kind, both)
            levels[kind] = Keys(both, keys.sources)
    return levels


def _level(reader: Reader, places: list[tuple[str, Any]], kind: str) -> Keys | None:
    keys = reader.keys
    inside = [(path, data[kind]) for path, data in places if kind in data]
    for path, value in inside:
        if value is not None:
            is_dict(path + kind, value)
    if inside and all(value is None for _, value in inside) and not reader.facts.fills:
        keys.sources[inside[0][0] + kind] = "no rotation in these layers"
        return None
    return Keys([(f"{path}{kind}.", value) for path, value in inside if value is not None], keys.sources)


def _held_by(reader: Reader, path: str, data: dict[str, Any]) -> list[str]:
    """The kinds of layers for which a dictionary that names none holds."""
    name, kinds = path.removeprefix(reader.path).rstrip("."), reader.facts.kinds
    if reader.facts.fills and data.get("type") not in (None, "default", data.get("rope_type")):
        raise ValueError(
            f"{path}type is {data['type']!r}, but the code of {reader.model_type} reads rope_type there; rename it"
        )
    held = [kind for kind, rope in kinds.items() if rope is not None and name in rope.flat]
    if not held:
        raise ValueError(
            f"{path.rstrip('.')} must have parameters per layer type ({', '.join(kinds)}) for {reader.model_type}, "
            f"got {sorted(data)}"
        )
    return held


def _refuse_beside(reader: Reader, path: str, data: dict[str, Any]) -> None:
    """Keys beside those of the layer types have no effect; transformers leaves a copy of some there."""
    kinds = reader.facts.kinds
    inside = [value for kind, value in data.items() if kind in kinds and isinstance(value, dict)]
    beside = Keys([(path, {k: v for k, v in data.items() if k not in kinds})], reader.sources)
    for name in (*TYPES, "rope_theta"):
        for where, value in beside.found(name):
            said = ["default", *(level.get(name) for level in inside)]
            if name not in reader.facts.beside and value not in said:
                raise ValueError(
                    f"{where} is {value!r}, but no layer type has it: parameters stand under {', '.join(kinds)}"
                )
            reader.sources[where] = "no effect: beside the parameters of the layer types"
    beside.refuse_unused(f"{reader.model_type}, whose parameters stand under {' and '.join(kinds)},")


def _must_agree(reader: Reader, kind: str, places: list[tuple[str, Any]]) -> None:
    """Two dictionaries about the same layers must say the same, each of them all of it."""
    parameters = reader.facts.defaults(kind)
    stated = [value for _, value in reader.keys.found(*(parameters.top if parameters is not None else ()))]
    outside = {"rope_theta": stated[0] if stated else parameters and parameters.base}
    (first, one), *others = places or [("", {})]
    for path, other in others:
        for name in {*one, *other}:
            values = [data.get(name, outside.get(name)) for data in (one, other)]
            if name in TYPES:
                values = [next((data[n] for n in TYPES if n in data), "default") for data in (one, other)]
            if values[0] != values[1]:
                raise ValueError(
                    f"{first}{name} and {path}{name} contradict each other: {values[0]!r} and {values[1]!r} (None: not "
                    f"there); the code of {reader.model_type} may take either dictionary alone: keep one"
                )


def refuse_gaps(facts: Facts, keys: Keys, *names: str, yarn: tuple[str, ...] = ()) -> None:
    """Raise ``ValueError`` where a dictionary under a kind of layer leaves out what its class fills in elsewhere.

    ``yarn``: what it must say beside that, if its scheme is YaRN.
    """
    for path, data in keys.found(*facts.dicts):
        for kind in facts.kinds:
            rope = data.get(kind) if isinstance(data, dict) else None
            scaled = isinstance(rope, dict) and "yarn" in (rope.get("rope_type"), rope.get("type"))
            for name in (*names, *(yarn if scaled else ())):
                if isinstance(rope, dict) and rope.get(name) is None:
                    raise ValueError(
                        f"{path}.{kind}.{name} is missing: under a kind of layer the code of {facts.config} takes "
                        "another default there than without a dictionary; add the value of the checkpoint"
                    )


def class_default(reader: Reader, more: dict[str, Any]) -> Keys:
    """The config class's own parameters, where the config has none."""
    rest = dict(more)
    if reader.facts.partial is not None and reader.keys.found(*reader.facts.shares, *reader.facts.widths):
        rest.pop("partial_rotary_factor", None)
    if rest:
        reader.default("rope_parameters", str(rest))
    return Keys([(f"{reader.facts.config}'s default ", rest)], {})


def account_for_rest(reader: Reader, used: set[str]) -> None:
    """Account for keys that speak of kinds of layers, or of scalings, that this model does not have."""
    for kind in set(reader.facts.kinds) - used:
        rope = reader.facts.defaults(kind)
        reader.keys.explain(f"no effect: no layer is of type {kind}", *(rope.top if rope is not None else ()))
    for path, value in reader.keys.found(ORIGINAL):
        whole(path, int(value) if isinstance(value, float) and value.is_integer() else value)
        reader.sources.setdefault(path, "no effect without a scaling that needs it")
