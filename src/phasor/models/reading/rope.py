"""Rope parameters: one dictionary for all layers or one per kind of layer; the base and width that they state."""

from dataclasses import dataclass
from typing import Any

from .keys import Keys, is_base, is_dict, is_length, is_number, is_share, must, near, slip_of
from .layers import Head
from .refusal import REMOVE, Reason, Refused, ambiguous, contradiction, unread
from .schemes import ORIGINAL, SCHEMES, TYPES
from .text_row import Rope, SpecFields, TextReading

ROPE_KEYS = (
    *TYPES, "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved", "finetuned",
    *dict.fromkeys(entry.key for scheme in SCHEMES.values() for entry in scheme.entries),
)  # fmt: skip
EXCHANGED, FRACTION = "rope_theta", "partial_rotary_factor"  # how rope parameters call base and share, in all families


def rope_dicts(keys: Keys, names: tuple[str, ...]) -> list[Keys]:
    """The dictionaries of rope parameters that a config has."""
    found = []
    for path, value in keys.entries(*names):
        is_dict(path, value)
        found.append(Keys([(f"{path}.", value)], keys.sources))
        if not value:
            keys.sources[path] = "empty: it states no parameters"
    return found


def rope_levels(reading: TextReading, needed: set[str]) -> dict[str, Keys | None]:
    """The rope parameters of each kind of layer, under ``""`` where all share them; None: the config says null.

    ``needed``: the kinds of the layers that rotate, each of which a dictionary that names kinds must name.

    Two dictionaries are merged only where they say the same: the code of most families takes one of them whole.
    """
    kinds = reading.row.kinds.keys()
    stated = [rope.places[0] for rope in rope_dicts(reading.keys, reading.row.dicts)]
    # one that is empty is stated all the same, under the name that the class itself has
    places = [place for place in stated if place[1]] or [p for p in stated if p[0].endswith("rope_parameters.")]
    if not kinds:
        _must_agree(reading, "", places)
        return {"": Keys(places, reading.sources)}
    nested = [(path, data) for path, data in places if kinds & data.keys()]
    for path, data in nested:
        _check_nested(reading, path, data, needed)
    levels = {kind: _level(reading, nested, kind) for kind in kinds}
    for path, data in places:
        for kind in [] if kinds & data.keys() else _kinds_held_by(reading, path, data):
            both = [*(level.places if (level := levels[kind]) is not None else ()), (path, data)]
            _must_agree(reading, kind, both)
            levels[kind] = Keys(both, reading.sources)
    return levels


def _level(reading: TextReading, places: list[tuple[str, Any]], kind: str) -> Keys | None:
    inside = [(path, data[kind]) for path, data in places if kind in data]
    for path, value in inside:
        if value is not None:
            is_dict(path + kind, value)
        if not value:
            reading.sources[path + kind] = "empty: it states no parameters"
    if inside and all(value is None for _, value in inside) and not reading.row.fills_defaults:
        reading.sources[inside[0][0] + kind] = "no rotation in these layers"
        return None
    return Keys([(f"{path}{kind}.", value) for path, value in inside if value is not None], reading.sources)


def _kinds_held_by(reading: TextReading, path: str, data: dict[str, Any]) -> list[str]:
    """The kinds of layers for which a dictionary that names none holds."""
    row, where = reading.row, path.rstrip(".")
    if data and row.fills_defaults and data.get("type") not in (None, "default", data.get("rope_type")):
        raise unread(
            f"{path}type", data["type"], f"the code of {reading.model_type} reads rope_type there", "rename it"
        )
    name = where.removeprefix(reading.path)
    held = [kind for kind, rope in row.kinds.items() if rope is not None and name in rope.flat]
    if data and not held:
        per_type = f"must have parameters per layer type ({', '.join(row.kinds)}) for {reading.model_type}"
        raise Refused(f"{where} {per_type}, got {sorted(data)}", Reason.AMBIGUOUS, where)
    return held


def _check_nested(reading: TextReading, path: str, data: dict[str, Any], needed: set[str]) -> None:
    """A dictionary with parameters per kind of layer stands where the code looks for it, and names all kinds.

    Keys next to the layer types have no effect; transformers leaves a copy of some there.
    """
    row, kinds, code = reading.row, reading.row.kinds, f"the code of {reading.model_type}"
    if row.fills_defaults and path.removeprefix(reading.path) != "rope_parameters.":
        why = f"{code} looks for types of layers in rope_parameters"
        raise unread(path.rstrip("."), data, why, "move them there")
    if missing := sorted(needed - data.keys()) if not row.fills_defaults else []:
        why = f"beside other kinds of layers {code} takes no default for them"
        raise ambiguous(f"{path}{missing[0]}", why, "add their parameters", path.rstrip("."))
    inside = [value for kind, value in data.items() if kind in kinds and isinstance(value, dict)]
    others = Keys([(path, {k: v for k, v in data.items() if k not in kinds})], reading.sources)
    for name in (*TYPES, EXCHANGED):
        for where, value in others.entries(name):
            copies = ["default", *(level.get(name) for level in inside)]
            if where.removeprefix(reading.path) not in row.reads and value not in copies:
                raise unread(where, value, f"no layer type has it: parameters stand under {', '.join(kinds)}")
            reading.sources[where] = "no effect: next to the parameters of the layer types"
    others.refuse_unused(f"{reading.model_type}, whose parameters stand under {' and '.join(kinds)},")


def _must_agree(reading: TextReading, kind: str, places: list[tuple[str, Any]]) -> None:
    """Two dictionaries about the same layers must say the same, each of them all of it."""
    row, parameters, code = reading.row, reading.row.defaults(kind), f"the code of {reading.model_type}"
    bases = reading.keys.entries(*(parameters.top if parameters is not None else ()))
    shares = reading.keys.entries(*row.shares) if row.partial is not None else []
    outside = {
        EXCHANGED: bases[0][1] if bases else parameters and parameters.base,
        FRACTION: shares[0][1] if shares else row.partial,
    }
    (first, one), *others = places or [("", {})]
    for path, other in others:
        for name in (key for key in {**one, **other} if key != "finetuned"):
            values = [data.get(name, outside.get(name)) for data in (one, other)]
            if name in TYPES:
                values = [next((data[n] for n in TYPES if n in data), "default") for data in (one, other)]
            if values[0] == values[1] or (name == "mrope_interleaved" and not any(values)):  # off is its default
                continue
            if name not in ROPE_KEYS:
                where, value = (path, other) if name in other else (first, one)
                raise unread(where + name, value[name], f"{code} has no such key{near(name, ROPE_KEYS)}")
            out = f"{code} may take either dictionary alone (None: not there): keep one"
            raise contradiction(first + name, path + name, values, out, first.rstrip("."), path.rstrip("."))


def class_default(reading: TextReading, more: dict[str, Any]) -> Keys:
    """The config class's own parameters, where the config has none."""
    rest = dict(more)
    if reading.row.partial is not None and reading.keys.entries(*reading.row.shares, *reading.row.widths):
        rest.pop(FRACTION, None)
    if rest:
        reading.keys.default("rope_parameters", str(rest))
    return Keys([(f"{reading.row.config}'s default ", rest)])


def account_for_rest(reading: TextReading, used: set[str]) -> None:
    """Account for keys that speak of kinds of layers, or of scalings, that this model does not have."""
    keys = reading.keys
    for kind in set(reading.row.kinds) - used:
        rope, why = reading.row.defaults(kind), f"no effect: no layer is of type {kind}"
        keys.explain(why, *(rope.top if rope is not None else ()))
        for path, data in keys.entries(*reading.row.dicts):
            inside = data.get(kind)
            for name, value in inside.items() if isinstance(inside, dict) else ():
                if meant := slip_of(name, ROPE_KEYS):
                    why_not = f"the code of {reading.model_type} has no such key; did you mean {meant}?"
                    raise unread(f"{path}.{kind}.{name}", value, why_not)
                keys.sources[f"{path}.{kind}.{name}"] = why
    for path, value in keys.entries(ORIGINAL):
        is_length(path, value)
        keys.sources.setdefault(path, "no effect without a scaling that needs it")


@dataclass(frozen=True)
class ListedBase:
    """What a config lists for one single layer: its base (0: it does not rotate) and its share of channels."""

    base: float
    share: float = 1.0


def read_base(reading: TextReading, parameters: Rope, rope: Keys, listed: ListedBase | None) -> float:
    """The base, inside the rope parameters or at the top under one of its names."""
    row, top = reading.row, reading.keys
    if listed is not None:
        for keys in (rope, top):
            if not isinstance(keys.get(EXCHANGED), list):
                keys.explain("no effect: every layer has its own base", EXCHANGED)
        return listed.base
    stated = rope.path.removeprefix(reading.path).partition(".")[0] in row.dicts  # and not the class's default
    entries = [*rope.entries(EXCHANGED), *top.entries(*parameters.top)]
    if parameters.more and not stated and not row.kinds:  # which come with a base of their own
        entries += [(f"{row.config}'s default rope_theta", parameters.base)]
    base = top.settle(entries, "base {:.10g}", is_base)
    if base is None:
        base = parameters.base if parameters.bare is None or not stated else parameters.bare
        if base is None:
            raise ambiguous(f"{reading.path}rope_theta", f"{reading.model_type} has no base of its own")
        top.default((parameters.top or (EXCHANGED,))[0], f"base {base:.10g}")
        if stated:
            assumed = f"base {base:.10g} is assumed, {row.config}'s default"
            reading.note(f"{rope.path.rstrip('.')} states no rope_theta: {assumed}")
    return float(base)


def read_width(reading: TextReading, scheme: str, rope: Keys, head: Head, listed: ListedBase | None) -> SpecFields:
    """Which channels rotate: a share or a number of channels, under the names that the family's code reads."""
    row, keys, head_dim = reading.row, reading.keys, head.channels
    if head.rotated is not None:
        return _latent_width(reading, scheme, rope, head_dim, head.rotated)
    shares = []
    if scheme != "proportional":  # whose share is one of pairs that rotate, inside the full width
        shares = [*rope.entries(FRACTION), *keys.entries(*(row.shares if row.partial is not None else ()))]
    if not shares and row.partial not in (None, 1.0):
        shares = [(path, 1.0) for path in keys.nulls(*row.shares)]  # which keep the class's default away
    for path, value in shares:
        is_share(path, value)
    stated = [(path, int(head_dim * share)) for path, share in shares]
    if listed is not None and listed.share != 1:
        stated.append(("partial_rotary_factors", int(head_dim * listed.share)))
    if keys.whole(*row.widths, at_least=2) is not None:
        stated += keys.entries(*row.widths)
    width = keys.settle(stated, "rotary_dim {}")
    if width is None:
        width = head_dim if scheme == "proportional" or listed is not None else _default_width(reading, head_dim)
    if row.partial is None and width != head_dim:
        said = f"{stated[0][0]} makes {width} of {head_dim} channels rotate"
        why = f"but the code of {reading.model_type} rotates all; {REMOVE}"
        raise Refused(f"{said}, {why}", Reason.UNREAD, stated[0][0])
    return {"head_dim": head_dim, "rotary_dim": width, "interleaved": row.interleaved, "permuted": row.permuted}


def _default_width(reading: TextReading, head_dim: int) -> int:
    row, share = reading.row, reading.row.partial
    if row.width is not None:
        reading.keys.default(row.widths[0], str(row.width))
        return row.width
    if share not in (None, 1.0):
        reading.keys.default((row.shares or (FRACTION,))[0], f"{share}")
    return int(head_dim * (1.0 if share is None else share))


def _latent_width(reading: TextReading, scheme: str, rope: Keys, head_dim: int, width: int) -> SpecFields:
    """Latent attention: the last ``qk_rope_head_dim`` channels of ``qk_nope_head_dim + qk_rope_head_dim`` rotate."""
    row, keys = reading.row, reading.keys
    # the functions of the scalings take a share of these channels, which the attention does not expect
    ignored = row.head_dim is not None or (scheme == "default" and not row.interleave_key)
    for level in (rope, keys) if scheme != "proportional" else (keys,):
        for path, share in level.entries(FRACTION):
            must(is_number(share), path, "a share of the head", share)
            if not ignored and share not in ((1, width / head_dim) if row.interleave_key else (1,)):
                out = "remove the first: the second says how many channels rotate"
                raise contradiction(path, f"{reading.path}qk_rope_head_dim", (share, width), out)
        level.explain(f"no effect: qk_rope_head_dim says {width}", FRACTION)
    interleaved, key = row.interleaved, "rope_interleave"
    if row.interleave_key and (flag := keys.flag(key)) is not None:
        interleaved = flag
        keys.explain("interleaved pairs" if flag else "halves", key)
    elif row.interleave_key and (null := keys.nulls(key)):
        interleaved = False
        keys.sources[null[0]] = "null: halves, as the code takes it"
    return {
        "head_dim": head_dim, "rotary_dim": width, "trailing": True, "interleaved": interleaved,
        "permuted": interleaved and row.permuted,
    }  # fmt: skip
