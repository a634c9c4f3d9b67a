"""Rope parameters: one dictionary for all layers or one per kind of layer; the base and width that they state."""

from dataclasses import dataclass
from typing import Any

from ...support.checks import whole
from .keys import Keys, agreed, is_base, is_dict, is_share, near, slip_of
from .layers import Head
from .refusal import REMOVE, Reason, Refused, ambiguous, contradiction, unread
from .schemes import ORIGINAL, SCHEMES, TYPES
from .text_row import Rope, SpecFields, TextReading, TextRow

ROPE_KEYS = (
    *TYPES, "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved", "finetuned",
    *dict.fromkeys(entry.key for scheme in SCHEMES.values() for entry in scheme.entries),
)  # fmt: skip
EXCHANGED = "rope_theta"  # how rope parameters call the base, in all families


def rope_levels(reading: TextReading, needed: set[str]) -> dict[str, Keys | None]:
    """The rope parameters of each kind of layer, under ``""`` where all share them; None: the config says null.

    ``needed``: the kinds of the layers that rotate, each of which a dictionary that names kinds must name.

    Two dictionaries are merged only where they say the same: the code of most families takes one of them whole.
    """
    keys, kinds = reading.keys, reading.row.kinds
    entries = keys.entries(*reading.row.dicts)
    for path, value in entries:
        is_dict(path, value)
        Keys([(f"{path}.", value)], {})  # its keys are words
        if not value:
            keys.sources[path] = "empty: it states no parameters"
    places = [(f"{path}.", value) for path, value in entries if value]
    if not places:  # one that is empty is stated all the same, under the name that the class itself has
        places = [(f"{path}.", value) for path, value in entries if path.endswith("rope_parameters")]
    if not kinds:
        _must_agree(reading, "", places)
        return {"": Keys(places, keys.sources)}
    nested = [(path, data) for path, data in places if any(kind in data for kind in kinds)]
    flat = [(path, data) for path, data in places if not any(kind in data for kind in kinds)]
    for path, data in nested:
        if reading.row.fills_defaults and path.removeprefix(reading.path) != "rope_parameters.":
            why = f"the code of {reading.model_type} looks for types of layers in rope_parameters"
            raise unread(path.rstrip("."), data, why, "move them there")
        if missing := sorted(needed - data.keys()) if not reading.row.fills_defaults else []:
            why = f"beside other kinds of layers the code of {reading.model_type} takes no default for them"
            raise ambiguous(f"{path}{missing[0]}", why, "add their parameters", path.rstrip("."))
        _refuse_next_to_kinds(reading, path, data)
    levels = {kind: _level(reading, nested, kind) for kind in kinds}
    for path, data in flat:
        for kind in _kinds_held_by(reading, path, data) if data else _flat_kinds(reading, path):
            level, inside = Keys([(path, data)], keys.sources), levels[kind]
            both = [*(inside.places if inside is not None else ()), *level.places]
            _must_agree(reading, kind, both)
            levels[kind] = Keys(both, keys.sources)
    return levels


def _level(reading: TextReading, places: list[tuple[str, Any]], kind: str) -> Keys | None:
    keys = reading.keys
    inside = [(path, data[kind]) for path, data in places if kind in data]
    for path, value in inside:
        if value is not None:
            is_dict(path + kind, value)
        if not value:
            keys.sources[path + kind] = "empty: it states no parameters"
    if inside and all(value is None for _, value in inside) and not reading.row.fills_defaults:
        keys.sources[inside[0][0] + kind] = "no rotation in these layers"
        return None
    return Keys([(f"{path}{kind}.", value) for path, value in inside if value is not None], keys.sources)


def _kinds_held_by(reading: TextReading, path: str, data: dict[str, Any]) -> list[str]:
    """The kinds of layers for which a dictionary that names none holds."""
    if reading.row.fills_defaults and data.get("type") not in (None, "default", data.get("rope_type")):
        why = f"the code of {reading.model_type} reads rope_type there"
        raise unread(f"{path}type", data["type"], why, "rename it")
    if not (kinds_held := _flat_kinds(reading, path)):
        where, kinds = path.rstrip("."), ", ".join(reading.row.kinds)
        said = f"{where} must have parameters per layer type ({kinds}) for {reading.model_type}, got {sorted(data)}"
        raise Refused(said, Reason.AMBIGUOUS, where)
    return kinds_held


def _flat_kinds(reading: TextReading, path: str) -> list[str]:
    name = path.removeprefix(reading.path).rstrip(".")
    return [kind for kind, rope in reading.row.kinds.items() if rope is not None and name in rope.flat]


def _refuse_next_to_kinds(reading: TextReading, path: str, data: dict[str, Any]) -> None:
    """Keys next to the layer types have no effect; transformers leaves a copy of some there."""
    kinds = reading.row.kinds
    inside = [value for kind, value in data.items() if kind in kinds and isinstance(value, dict)]
    others = Keys([(path, {k: v for k, v in data.items() if k not in kinds})], reading.sources)
    for name in (*TYPES, "rope_theta"):
        for where, value in others.entries(name):
            copies = ["default", *(level.get(name) for level in inside)]
            if where.removeprefix(reading.path) not in reading.row.reads and value not in copies:
                raise unread(where, value, f"no layer type has it: parameters stand under {', '.join(kinds)}")
            reading.sources[where] = "no effect: next to the parameters of the layer types"
    others.refuse_unused(f"{reading.model_type}, whose parameters stand under {' and '.join(kinds)},")


def _must_agree(reading: TextReading, kind: str, places: list[tuple[str, Any]]) -> None:
    """Two dictionaries about the same layers must say the same, each of them all of it."""
    parameters = reading.row.defaults(kind)
    stated = [value for _, value in reading.keys.entries(*(parameters.top if parameters is not None else ()))]
    shares = reading.keys.entries(*reading.row.shares) if reading.row.partial is not None else []
    outside = {
        "rope_theta": stated[0] if stated else parameters and parameters.base,
        "partial_rotary_factor": shares[0][1] if shares else reading.row.partial,
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
                why = f"the code of {reading.model_type} has no such key{near(name, ROPE_KEYS)}"
                raise unread(where + name, value[name], why)
            out = f"the code of {reading.model_type} may take either dictionary alone (None: not there): keep one"
            raise contradiction(first + name, path + name, values, out, first.rstrip("."), path.rstrip("."))


def refuse_gaps(row: TextRow, keys: Keys, *names: str, yarn: tuple[str, ...] = ()) -> None:
    """Raise ``ValueError`` where a dictionary under a kind of layer leaves out what its class fills in elsewhere.

    ``yarn``: what else it must say, if its scheme is YaRN.
    """
    for path, data in keys.entries(*row.dicts):
        for kind in row.kinds:
            rope = data.get(kind) if isinstance(data, dict) else None
            scaled = isinstance(rope, dict) and "yarn" in (rope.get("rope_type"), rope.get("type"))
            for name in (*names, *(yarn if scaled else ())):
                if isinstance(rope, dict) and rope.get(name) is None:
                    why = f"{row.config} takes another default under a kind of layer than without a dictionary"
                    raise ambiguous(f"{path}.{kind}.{name}", why)


def class_default(reading: TextReading, more: dict[str, Any]) -> Keys:
    """The config class's own parameters, where the config has none."""
    rest = dict(more)
    if reading.row.partial is not None and reading.keys.entries(*reading.row.shares, *reading.row.widths):
        rest.pop("partial_rotary_factor", None)
    if rest:
        reading.default("rope_parameters", str(rest))
    return Keys([(f"{reading.row.config}'s default ", rest)], {})


def account_for_rest(reading: TextReading, used: set[str]) -> None:
    """Account for keys that speak of kinds of layers, or of scalings, that this model does not have."""
    inside = [(path, data) for path, data in reading.keys.entries(*reading.row.dicts) if isinstance(data, dict)]
    for kind in set(reading.row.kinds) - used:
        rope = reading.row.defaults(kind)
        reading.keys.explain(f"no effect: no layer is of type {kind}", *(rope.top if rope is not None else ()))
        for path, data in (
            (f"{path}.{kind}.", data[kind]) for path, data in inside if isinstance(data.get(kind), dict)
        ):
            refuse_slips(path, data, reading.model_type)
            reading.sources.update({f"{path}{name}": f"no effect: no layer is of type {kind}" for name in data})
    for path, value in reading.keys.entries(ORIGINAL):
        whole(path, int(value) if isinstance(value, float) and value.is_integer() else value)
        reading.sources.setdefault(path, "no effect without a scaling that needs it")


def refuse_slips(path: str, data: dict[str, Any], owner: str) -> None:
    """Raise `Refused` for a key that is nearly one of rope parameters, where none of them has an effect."""
    Keys([(path, data)], {})  # its keys are words
    for name, value in data.items():
        if meant := slip_of(name, ROPE_KEYS):
            raise unread(f"{path}{name}", value, f"the code of {owner} has no such key; did you mean {meant}?")


@dataclass(frozen=True)
class ListedBase:
    """What a config lists for one single layer: its base (0: it does not rotate) and its share of channels."""

    base: float
    share: float = 1.0


def read_base(reading: TextReading, parameters: Rope, rope: Keys, listed: ListedBase | None) -> float:
    """The base, inside the rope parameters or at the top under one of its names."""
    top = reading.keys
    if listed is not None:
        for keys in (rope, top):
            if not isinstance(keys.get(EXCHANGED), list):
                keys.explain("no effect: every layer has its own base", EXCHANGED)
        return listed.base
    first = rope.places[0][0].removeprefix(reading.path).partition(".")[0] if rope.places else ""
    stated = first in reading.row.dicts  # and not the class's default
    default = parameters.base if parameters.bare is None or not stated else parameters.bare
    entries = [*rope.entries(EXCHANGED), *top.entries(*parameters.top)]
    if parameters.more and not stated and not reading.row.kinds:  # which come with a base of their own
        entries += [(f"{reading.row.config}'s default rope_theta", parameters.base)]
    base = agreed(entries, is_base)
    if base is None and default is None:
        raise ambiguous(f"{reading.path}rope_theta", f"{reading.model_type} has no base of its own")
    if base is None:
        base = default
        assert base is not None
        reading.default((parameters.top or (EXCHANGED,))[0], f"base {base:.10g}")
        if stated:
            where = rope.places[0][0].rstrip(".")
            reading.note(f"{where} states no rope_theta: base {base:.10g} is assumed, {reading.row.config}'s default")
    for path, _ in entries:
        reading.sources[path] = f"base {base:.10g}"
    return float(base)


def read_width(reading: TextReading, scheme: str, rope: Keys, head: Head, listed: ListedBase | None) -> SpecFields:
    """Which channels rotate: a share or a number of channels, under the names that the family's code reads."""
    row, keys, head_dim = reading.row, reading.keys, head.channels
    if head.rotated is not None:
        return _latent_width(reading, scheme, rope, head_dim, head.rotated)
    shares = []
    if scheme != "proportional":  # whose share is one of pairs that rotate, inside the full width
        shares = [
            *rope.entries("partial_rotary_factor"),
            *keys.entries(*(row.shares if row.partial is not None else ())),
        ]
    if not shares and row.partial not in (None, 1.0):
        shares = [(path, 1.0) for path in keys.nulls(*row.shares)]  # which keep the class's default away
    for path, value in shares:
        is_share(path, value)
    stated = [(path, int(head_dim * share)) for path, share in shares]
    if listed is not None and listed.share != 1:
        stated.append(("partial_rotary_factors", int(head_dim * listed.share)))
    if keys.whole(*row.widths, at_least=2) is not None:
        stated += keys.entries(*row.widths)
    width = agreed(stated)
    if width is None:
        width = head_dim if scheme == "proportional" or listed is not None else _default_width(reading, head_dim)
    if row.partial is None and width != head_dim:
        where, code = stated[0][0], f"the code of {reading.model_type} rotates all"
        said = f"{where} makes {width} of {head_dim} channels rotate, but {code}; {REMOVE}"
        raise Refused(said, Reason.UNREAD, where)
    for path, _ in stated:
        reading.sources[path] = f"rotary_dim {width}"
    return {"head_dim": head_dim, "rotary_dim": width, "interleaved": row.interleaved, "permuted": row.permuted}


def _default_width(reading: TextReading, head_dim: int) -> int:
    row, share = reading.row, reading.row.partial
    if row.width is not None:
        reading.default(row.widths[0], str(row.width))
        return row.width
    if share not in (None, 1.0):
        reading.default((row.shares or ("partial_rotary_factor",))[0], f"{share}")
    return int(head_dim * (1.0 if share is None else share))


def _latent_width(reading: TextReading, scheme: str, rope: Keys, head_dim: int, width: int) -> SpecFields:
    """Latent attention: the last ``qk_rope_head_dim`` channels of ``qk_nope_head_dim + qk_rope_head_dim`` rotate."""
    row, keys = reading.row, reading.keys
    for level in (rope, keys) if scheme != "proportional" else (keys,):
        for path, share in level.entries("partial_rotary_factor"):
            # the functions of the scalings take a share of these channels, which the attention does not expect
            ignored = row.head_dim is not None or (scheme == "default" and not row.interleave_key)
            allowed = (share,) if ignored else (1, width / head_dim) if row.interleave_key else (1,)
            if not isinstance(share, int | float) or isinstance(share, bool):
                raise ValueError(f"{path} must be a share of the head, got {share!r}")
            if share not in allowed:
                out = "remove the first: the second says how many channels rotate"
                raise contradiction(path, f"{reading.path}qk_rope_head_dim", (share, width), out)
        level.explain(f"no effect: qk_rope_head_dim says {width}", "partial_rotary_factor")
    interleaved = row.interleaved
    flag = keys.flag("rope_interleave") if row.interleave_key else None
    if row.interleave_key and (null := keys.nulls("rope_interleave")):
        interleaved = False
        keys.sources[null[0]] = "null: halves, as the code takes it"
    if flag is not None:
        interleaved = flag
        keys.explain("interleaved pairs" if flag else "halves", "rope_interleave")
    return {
        "head_dim": head_dim, "rotary_dim": width, "trailing": True, "interleaved": interleaved,
        "permuted": interleaved and row.permuted,
    }  # fmt: skip
