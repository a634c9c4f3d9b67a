"""A text model put into its config: the declared length, the lists of one value per layer, then each kind of layer."""

from typing import Any

from .custom_parser import Line
from .keys import Keys
from .model import ModelRotary
from .rope import rope_levels
from .schemes import TYPES
from .sizes import read_sizes
from .spec_fields import EXCHANGED, Reader
from .text import Text, kind_of
from .write_places import Places, alike
from .write_rope import share_of, write_kind

SHARES_LISTED = "partial_rotary_factors"


def write_text(row: Text, data: dict[str, Any], defaults: dict[str, Any], old: ModelRotary, new: ModelRotary) -> None:
    """Change ``data``, from which ``old`` was read, so that it says ``new``, as far as the row knows how.

    ``defaults``: what a composite config sets where ``data`` says nothing.
    """
    seen = {**defaults, **data}
    keys = Keys([("", row.canonical(seen, "") if isinstance(row, Line) else seen)], {})
    facts = row if row.before is None else row.before(row, keys)
    sizes = read_sizes(facts, keys)
    reader = Reader(old.model_type, facts, keys, "", sizes.max_position, sizes.length_key)
    kinds = [kind_of(facts, word) for word in old.layer_types]
    lengthened = old.max_position != new.max_position
    places = Places(reader, data, rope_levels(reader, set()), tuple(dict.fromkeys(kinds)), lengthened)
    if lengthened and new.max_position is not None:
        _write_length(row, data, seen, new.max_position)
    listed = _write_lists(places, kinds, old, new)
    for kind in places.kinds:
        layers = [(a, b) for k, a, b in zip(kinds, old.layers, new.layers, strict=True) if k == kind]
        write_kind(places, kind, layers, listed)
    _repeat_beside(places)
    if row.write is not None:
        row.write(new, data)


def _write_length(row: Text, data: dict[str, Any], seen: dict[str, Any], length: int) -> None:
    names = row.names.length
    spots = [(data, name) for name in names if seen.get(name) is not None]
    if isinstance(row, Line):
        levels = (data, data.get(row.nested) or {})
        spots += [(d, k) for d in levels for k, name in row.renamed.items() if name in names and d.get(k) is not None]
    for level, name in spots or [(data, name) for name in names[:1]]:
        level[name] = length


def _repeat_beside(places: Places) -> None:
    """The copy of base or type that may stand beside the layer types goes on repeating one of them."""
    kinds = places.facts.kinds
    for rope in (places.data.get(name) or {} for name in places.facts.dicts if kinds):
        for key in (*TYPES, EXCHANGED):
            inside = [level.get(key) for kind, level in rope.items() if kind in kinds and isinstance(level, dict)]
            if any(inside) and rope.get(key) not in (None, *inside):
                rope[key] = next(filter(None, inside))


def _write_lists(places: Places, kinds: list[str], old: ModelRotary, new: ModelRotary) -> bool:
    """Base and share of each layer, where the config lists them, or nothing but a list can say them."""
    name = places.facts.bases
    stated = places.seen.get(name)
    if not isinstance(stated, list | tuple):
        if not name or (name == EXCHANGED and stated is None) or not _need_list(kinds, old, new):
            return False
        stated = [0.0] * len(old.layers)
    bases, shares = list(stated), list(places.seen.get(SHARES_LISTED) or [1.0] * len(stated))
    for i, (before, after) in enumerate(zip(old.layers, new.layers, strict=True)):
        if before is not None or after is not None:
            bases[i] = 0 if after is None else alike(bases[i], after.base)
        if before is not None and after is not None and before.rotary_dim != after.rotary_dim:
            shares[i] = share_of(after.rotary_dim, after.head_dim)
    places.data[name] = bases
    if len(same := {spec.base for spec in new.distinct}) == 1:  # of no effect then, and what others may read
        for kind in kinds:
            places.set_inside(kind, (EXCHANGED,), *same)
    if shares != list(places.seen.get(SHARES_LISTED) or [1.0] * len(stated)):
        if places.facts.partial is None:
            raise ValueError(f"the code of {places.reader.model_type} turns all channels of a head")
        places.data[SHARES_LISTED] = shares
    return True


def _need_list(kinds: list[str], old: ModelRotary, new: ModelRotary) -> bool:
    """Whether layers of one kind differ in their base, or other layers rotate than before."""
    bases: dict[str, set[float]] = {}
    for kind, spec in zip(kinds, new.layers, strict=True):
        bases.setdefault(kind, set()).update(() if spec is None else (spec.base,))
    turned = [spec is None for spec in old.layers] != [spec is None for spec in new.layers]
    return turned or any(len(found) > 1 for found in bases.values())
