"""A text model put into its config: what changes is written where that config states it, or added in its style.

Nothing here knows what a family's code cannot say: whoever calls reads the result back, and compares.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...rotary.axes import Listed, OneAxis, Sections
from ...rotary.model_rotary import ModelRotary
from ...rotary.scaling import Proportional, Scaling
from ...rotary.spec import RotarySpec
from .composite import BASES, SHARES, WIDTHS
from .keys import Keys
from .rope import EXCHANGED, FRACTION
from .schemes import FAMILY_SCHEMES, ORIGINAL, SCHEMES, TYPES, scheme_for
from .text import TextModel
from .text_row import Rope

OLD, NEW = "rope_scaling", "rope_parameters"
SHARES_LISTED = "partial_rotary_factors"
SECTIONS = ("mrope_section", "xdrope_section")
OF_SCHEMES = {entry.key for scheme in SCHEMES.values() for entry in scheme.entries} | {"long_mscale", "short_mscale"}
Config = dict[str, Any]
Pair = tuple[RotarySpec | None, RotarySpec | None]  # of one layer: as the config says it, and as it shall


@dataclass(frozen=True)
class Places:
    """The config ``data`` while it is being changed; ``stated``: as it was, with what the config around it sets."""

    model_type: str
    row: TextModel
    data: Config
    stated: Config

    @property
    def style(self) -> str:
        """The name of a new dictionary: the old one if the config has keys that went with it."""
        row = self.row
        went_with = [OLD, *row.widths, *(row.shares if row.partial is not None else ())]
        went_with += [key for kind in row.kinds or ("",) for key in self.parameters(kind).top if row.defaults(kind)]
        old = OLD in row.dicts and any(key in self.stated for key in went_with)
        return OLD if old and not (NEW in row.dicts and self.data.get(NEW)) else NEW

    def parameters(self, kind: str) -> Rope:
        return self.row.defaults(kind) or Rope(None)

    def ropes(self, kind: str) -> list[Config]:
        """The dictionaries that hold for layers of this kind."""
        kinds, found = self.row.kinds, []
        for name in self.row.dicts:
            rope = self.data.get(name) or {}
            if kinds.keys() & rope.keys():
                found.append(rope.get(kind))
            elif not kinds or name in self.parameters(kind).flat:
                found.append(rope)
        return [rope for rope in found if rope]

    def ropes_or_new(self, kind: str) -> list[Config]:
        """The same; where there is none, one that says what its absence means is put into the config."""
        kinds, style = self.row.kinds, self.style
        if not self.row.dicts:
            raise ValueError(f"the code of {self.model_type} has no key for it")
        if found := self.ropes(kind):
            return found
        if style == OLD or not kinds:
            if kinds and OLD not in self.parameters(kind).flat:
                per_type = "rope_parameters per layer type would"
                raise ValueError(f"rope_scaling holds for other layers than {kind}; {per_type}")
            self.data[style] = self._default(kind)
        else:
            levels = self.data.get(NEW) or {}
            new = (kind,) if levels else (*(each for each, rope in kinds.items() if rope is not None), kind)
            self.data[NEW] = {**levels, **{each: self._default(each) for each in new}}
        return self.ropes(kind)

    def _default(self, kind: str) -> Config:
        """What the class takes where the config has no dictionary."""
        parameters, row = self.parameters(kind), self.row
        rope = {"rope_type": "default", **parameters.more}
        if self._says(*row.shares, *row.widths):
            rope.pop(FRACTION, None)
        if self.style == NEW and parameters.base is not None and not self._says(*parameters.top):
            rope[EXCHANGED] = parameters.base
        return rope

    def _says(self, *names: str) -> bool:
        return any(self.stated.get(name) is not None for name in names)

    def put(self, kind: str, names: Sequence[str], value: Any) -> None:
        """Into the dictionaries of a kind: under those of the names that stand there, else under the first, anew."""
        if not change(self.ropes(kind), names, value):
            change(self.ropes_or_new(kind), names[:1], value, add=True)

    def change_copies(self, names: Iterable[str], old: Any, new: Any) -> None:
        """Keys that say what is so, and that the code does not read."""
        change([self.data], [name for name in names if self.stated.get(name) == old], new)


def change(levels: Iterable[Config], names: Iterable[str], value: Any, add: bool = False) -> bool:
    """Change those of the keys that are stated, with ``add`` all of them; whether there were any."""
    stated = [(level, name) for level in levels for name in names if add or level.get(name) is not None]
    for level, name in stated:
        level[name] = value if add else alike(level[name], value)
    return bool(stated)


def alike(stated: Any, value: Any) -> Any:
    """``value``, without a fraction where a whole number was ``stated``: some config classes take nothing else.

    >>> alike(10_000, 500_000.0), alike(1.0, 4.0)
    (500000, 4.0)
    """
    return int(value) if type(stated) is int and isinstance(value, float) and value.is_integer() else value


def share_of(width: int, channels: int) -> float:
    """The share of ``channels`` that is ``width`` again, rounded down as models do.

    >>> share_of(32, 80)
    0.4
    """
    share = width / channels
    while int(channels * share) < width:
        share = math.nextafter(share, 2.0)
    return share


def write_text(row: TextModel, data: Config, defaults: Config, old: ModelRotary, new: ModelRotary) -> None:
    """Change ``data``, from which ``old`` was read, so that it says ``new``, as far as its keys can.

    ``defaults``: what a composite config sets where ``data`` says nothing.
    """
    config = {**defaults, **data}
    adapted = row if row.before is None else row.before(row, Keys([("", config)]))
    assert isinstance(adapted, TextModel)
    places = Places(old.model_type, adapted, data, config)
    kinds = [row.kind_of(word) for word in old.layer_types]
    lengthened = new.max_position is not None and old.max_position != new.max_position
    if lengthened:
        renamed = getattr(row, "renamed", {})
        names = (*row.names.length, *(key for key, name in renamed.items() if name in row.names.length))
        if not change((data, data.get(getattr(row, "nested", "")) or {}), names, new.max_position):
            data[names[0]] = new.max_position
    listed = _write_lists(places, kinds, old, new)
    for kind in dict.fromkeys(kinds):
        layers = [(a, b) for k, a, b in zip(kinds, old.layers, new.layers, strict=True) if k == kind]
        _write_kind(places, kind, layers, listed, lengthened)
    _repeat_next_to_kinds(row, data)
    if row.write is not None:
        row.write(new, data)


def _write_lists(places: Places, kinds: list[str], old: ModelRotary, new: ModelRotary) -> bool:
    """Base and share of each layer, where the config lists them, or nothing but a list can say them."""
    name, data = places.row.bases, places.data
    bases = places.stated.get(name)
    if not isinstance(bases, list | tuple):
        said = {(kind, spec.base) for kind, spec in zip(kinds, new.layers, strict=True) if spec is not None}
        others = [spec is None for spec in old.layers] != [spec is None for spec in new.layers]
        if not name or (name == EXCHANGED and bases is None) or not (others or len(said) > len(dict(said))):
            return False
        bases = [0.0] * len(old.layers)
    bases, shares = list(bases), list(places.stated.get(SHARES_LISTED) or [1.0] * len(bases))
    before = list(shares)
    for i, (a, b) in enumerate(zip(old.layers, new.layers, strict=True)):
        if a is not None or b is not None:
            bases[i] = 0 if b is None else alike(bases[i], b.base)
        if a is not None and b is not None and a.rotary_dim != b.rotary_dim:
            shares[i] = share_of(b.rotary_dim, b.head_dim)
    data |= {name: bases} if shares == before else {name: bases, SHARES_LISTED: shares}
    if len(same := {spec.base for spec in new.distinct}) == 1:  # of no effect then, and what others may read
        change([rope for kind in kinds for rope in places.ropes(kind)], (EXCHANGED,), same.pop())
    return True


def _write_kind(places: Places, kind: str, layers: list[Pair], listed: bool, lengthened: bool) -> None:
    """What differs in the layers of one kind; the first layer in which a field differs speaks for all.

    ``listed``: the config lists base and width of each layer.
    """
    pairs = [(a, b) for a, b in layers if a is not None and b is not None]
    if not pairs:
        _rotate_or_not(places, kind, layers)
        return
    differ = {name: pair for pair in reversed(pairs) for name in pair[0].diff(pair[1])}
    if "base" in differ and not listed:
        _write_base(places, kind, *(spec.base for spec in differ["base"]))
    scaled = [pair for pair in pairs if pair[0].scaling is not None and lengthened]
    for before, after in [differ["scaling"]] if "scaling" in differ else scaled[:1]:
        _write_scaling(places, kind, before.scaling, after.scaling)
    if "interleaved" in differ and places.row.interleave_key:
        places.data["rope_interleave"] = differ["interleaved"][1].interleaved
    if (width := differ.get("exponent_dim") or differ.get("rotary_dim")) and not listed:
        _write_width(places, kind, *width)
    if axes := differ.get("axes") or differ.get("second"):
        _write_sections(places, kind, axes[1])


def _rotate_or_not(places: Places, kind: str, layers: list[Pair]) -> None:
    """Null stands for the parameters of layers that do not rotate, where the family's code knows that."""
    if not places.row.kinds or places.row.defaults(kind) is not None:
        return
    if wanted := [b for _, b in layers if b is not None]:
        change(places.ropes_or_new(kind), (EXCHANGED,), wanted[0].base, add=True)
        _write_scaling(places, kind, None, wanted[0].scaling)
    elif any(a is not None for a, _ in layers):
        places.data[NEW] = {**(places.data.get(NEW) or {}), kind: None}


def _repeat_next_to_kinds(row: TextModel, data: Config) -> None:
    """The copy of base or type that may stand beside the layer types goes on repeating one of them."""
    for rope in (data.get(name) or {} for name in row.dicts if row.kinds):
        for key in (*TYPES, EXCHANGED):
            inside = [level.get(key) for kind, level in rope.items() if kind in row.kinds and isinstance(level, dict)]
            if any(inside) and rope.get(key) not in (None, *inside):
                rope[key] = next(filter(None, inside))


def _write_base(places: Places, kind: str, old: float, base: float) -> None:
    top, row = places.parameters(kind).top, places.row
    places.change_copies(BASES, old, base)
    inside = change(places.ropes(kind), (EXCHANGED,), base)
    if change([places.data], top, base) or inside or (row.write and not row.dicts and not top):
        return  # the last: the family has a key of its own, which its function writes
    if top and (places.style == OLD or not row.dicts):
        places.data[top[0]] = base
    else:
        places.put(kind, (EXCHANGED,), base)


def _write_width(places: Places, kind: str, old: RotarySpec, spec: RotarySpec) -> None:
    row, data, width = places.row, places.data, spec.exponent_dim or spec.rotary_dim
    share = share_of(width, spec.head_dim)
    places.change_copies(WIDTHS, old.rotary_dim, width)
    places.change_copies(SHARES, old.rotary_dim / old.head_dim, share)
    inside = [] if isinstance(spec.scaling, Proportional) else places.ropes(kind)
    stated = change([data], row.shares, share), change([data], row.widths, width), change(inside, (FRACTION,), share)
    if any(stated):
        return
    if row.widths or (row.shares and places.style == OLD):
        data |= {row.widths[0]: width} if row.widths else {row.shares[0]: share}
    else:
        change(places.ropes_or_new(kind), (FRACTION,), share, add=True)


def _write_sections(places: Places, kind: str, spec: RotarySpec) -> None:
    """The list from which the axes of a spec are read, if any."""
    axes, second = spec.axes, spec.second
    if isinstance(axes, Sections):
        places.put(kind, SECTIONS, list(axes.sections))
    elif isinstance(axes, Listed) and isinstance(second, Listed):  # over channels, both members of each pair
        both = (*axes.axis, *second.axis)
        places.put(kind, SECTIONS, [both.count(axis) // 2 for axis in range(axes.count)])
    elif isinstance(axes, Listed):
        places.put(kind, SECTIONS, [axes.axis.count(axis) for axis in (1, 2, 0)])  # height, width, time
    for rope in places.ropes(kind) if isinstance(axes, OneAxis) else ():
        for name in SECTIONS:
            rope.pop(name, None)


def _write_scaling(places: Places, kind: str, old: Scaling | None, new: Scaling | None) -> None:
    if places.row.write is not None:  # its own function writes a scheme that no rope parameters say
        known = {scheme.scaling for scheme in SCHEMES.values()}
        old, new = (scaling if type(scaling) in known else None for scaling in (old, new))
    if new is not None and not places.row.scaled:
        raise ValueError(f"the code of {places.model_type} has no scaling")
    for rope in places.ropes_or_new(kind) if old or new else ():
        _put_scaling(places, rope, old, new)
        nothing_left = new is None and set(rope) <= set(TYPES) and not places.parameters(kind).more
        if nothing_left and places.data.get(OLD) is rope:
            places.data[OLD] = None


def _put_scaling(places: Places, rope: Config, old: Scaling | None, new: Scaling | None) -> None:
    """Make the dictionary ``rope``, from which ``old`` was read, say ``new``; the top may state the original length.

    Keys that say so already stay. ``factor`` is stated in any case: it may have followed from a length that changes.
    """
    (_, before), (name, after) = scheme_for(old), scheme_for(new)
    said, shall, same = before.write(old), after.write(new), before is after
    for key in ({*said} if same else {*said} | OF_SCHEMES - {FRACTION}) - {*shall}:
        rope.pop(key, None)
    for key, value in shall.items():
        holders = [level for level in (rope, places.data)[: 1 + (key == ORIGINAL)] if level.get(key) is not None]
        if not (same and said.get(key) == value and (holders or key != "factor")):
            for level in holders or [rope]:
                level[key] = value
    for key in () if same else [key for key in TYPES if key in rope] or TYPES[:1]:
        rope[key] = _word(places, rope, name)


def _word(places: Places, rope: Config, name: str) -> str:
    """The family's word for a scheme."""
    row = places.row
    for word in (name, *row.scheme_names):
        meant = row.scheme_names.get(word, "" if word in FAMILY_SCHEMES else word)
        if name == (meant(Keys([("", rope)])) if callable(meant) else meant):
            return word
    raise ValueError(f"the code of {places.model_type} has no scaling {name!r}")
