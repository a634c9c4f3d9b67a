"""A text model put into its config: what changes is written where that config states it, or added in its style.

First the declared length, then the lists of one value per layer, then each kind of layer.
"""

import math
from dataclasses import dataclass
from typing import Any

from ...rotary.axes import Listed, OneAxis, Sections
from ...rotary.model_rotary import ModelRotary
from ...rotary.scaling import Proportional, Scaling
from ...rotary.spec import RotarySpec
from .composite import BASES, SHARES, WIDTHS
from .keys import Keys
from .rope import EXCHANGED, rope_levels
from .schemes import FAMILY_SCHEMES, ORIGINAL, SCHEMES, TYPES, scheme_for
from .sizes import read_sizes
from .text import TextModel
from .text_row import Rope, TextReading, TextRow
from .tower import SequenceTower

OLD, NEW = "rope_scaling", "rope_parameters"
SHARES_LISTED = "partial_rotary_factors"
SECTIONS = ("mrope_section", "xdrope_section")
Layer = tuple[RotarySpec | None, RotarySpec | None]  # as the config says it, and as it shall
FRACTION = "partial_rotary_factor"
MORE = ("long_mscale", "short_mscale")  # keys of schemes that are not in their entries


@dataclass(frozen=True)
class Places:
    """The config ``data`` while it is being changed.

    - ``reading``: knows its row and its keys, as they were read; ``levels``: the rope parameters of each
      kind of layer.
    - ``kinds``: those that the model has; ``lengthened``: the declared length changes.
    """

    reading: TextReading
    data: dict[str, Any]
    levels: dict[str, Keys | None]
    kinds: tuple[str, ...]
    lengthened: bool

    @property
    def row(self) -> TextRow:
        return self.reading.row

    @property
    def stated(self) -> dict[str, Any]:
        """The config as it was read, with what the config around it sets."""
        return self.reading.keys.places[0][1]

    @property
    def style(self) -> str:
        """The name of the dictionary, where there is none: the old one if the config has keys that went with it."""
        row, config = self.row, self.stated
        if NEW in row.dicts and self.data.get(NEW):
            return NEW
        tops = [key for kind in row.kinds or ("",) if (rope := row.defaults(kind)) for key in rope.top]
        shares = row.shares if row.partial is not None else ()
        old = OLD in row.dicts and any(key in config for key in (OLD, *tops, *shares, *row.widths))
        return OLD if old else NEW

    def parameters(self, kind: str) -> Rope:
        return self.row.defaults(kind) or Rope(None)

    def set_top(self, names: tuple[str, ...], value: Any) -> bool:
        """Change those of the keys at the top that are stated; whether there were any."""
        stated = [name for name in names if self.stated.get(name) is not None]
        self.data.update({name: alike(self.stated[name], value) for name in stated})
        return bool(stated)

    def set_inside(self, kind: str, names: tuple[str, ...], value: Any) -> bool:
        """The same in the dictionaries that hold for layers of this kind."""
        places_stated = [(rope, name) for rope in self.ropes(kind) for name in names if rope.get(name) is not None]
        for rope, name in places_stated:
            rope[name] = alike(rope[name], value)
        return bool(places_stated)

    def add(self, kind: str, name: str, value: Any) -> None:
        """State a key in the dictionaries that hold for layers of this kind, or in a new one."""
        for rope in self.ropes_or_new(kind):
            rope[name] = value

    def ropes(self, kind: str) -> list[dict[str, Any]]:
        level = self.levels[kind]
        return [] if level is None else [rope for _, rope in level.places]

    def ropes_or_new(self, kind: str) -> list[dict[str, Any]]:
        """The dictionaries; where there is none, one that says what its absence means is put into the config."""
        if not self.ropes(kind):
            self._create(kind)
        return self.ropes(kind)

    def _create(self, kind: str) -> None:
        style, kinds = self.style, self.row.kinds
        if not self.row.dicts:
            raise ValueError(f"the code of {self.reading.model_type} has no key for it")
        if not kinds:
            self.data[style] = self._default(kind, style)
            self._hold(kind, self.data[style])
        elif style == OLD:
            kinds_held = [each for each, rope in kinds.items() if rope is not None and OLD in rope.flat]
            if kind not in kinds_held:
                raise ValueError(
                    f"rope_scaling holds for {' and '.join(kinds_held) or 'no'} layers there, not for {kind} layers; "
                    "rope_parameters per layer type would"
                )
            self.data[OLD] = self._default(kind, style)
            for each in kinds_held:
                self._hold(each, self.data[OLD])
        else:
            levels = self.data.get(NEW) or {}
            for each in (kind,) if levels else kinds:
                if each in self.kinds or kinds[each] is not None:
                    levels[each] = self._default(each, style)
                    self._hold(each, levels[each])
            self.data[NEW] = levels

    def _hold(self, kind: str, rope: dict[str, Any]) -> None:
        self.levels[kind] = Keys([("", rope)], {})

    def _default(self, kind: str, style: str) -> dict[str, Any]:
        """What the class takes where the config has no dictionary."""
        parameters, shared = self.parameters(kind), (*self.row.shares, *self.row.widths)
        rope = {"rope_type": "default", **parameters.more}
        if any(self.stated.get(key) is not None for key in shared):
            rope.pop("partial_rotary_factor", None)
        stated = any(self.stated.get(key) is not None for key in parameters.top)
        if style == NEW and parameters.base is not None and not stated:
            rope[EXCHANGED] = parameters.base
        return rope


def write_text(
    row: TextModel, data: dict[str, Any], defaults: dict[str, Any], old: ModelRotary, new: ModelRotary
) -> None:
    """Change ``data``, from which ``old`` was read, so that it says ``new``, as far as the row knows how.

    ``defaults``: what a composite config sets where ``data`` says nothing.
    """
    config = {**defaults, **data}
    keys = Keys([("", row.canonical(config, "") if isinstance(row, SequenceTower) else config)], {})
    adapted = row if row.before is None else row.before(row, keys)
    sizes = read_sizes(adapted, keys)
    reading = TextReading(old.model_type, adapted, keys, "", sizes.max_position, sizes.length_key)
    kinds = [adapted.kind_of(word) for word in old.layer_types]
    lengthened = old.max_position != new.max_position
    places = Places(reading, data, rope_levels(reading, set()), tuple(dict.fromkeys(kinds)), lengthened)
    if lengthened and new.max_position is not None:
        _write_length(row, data, config, new.max_position)
    listed = _write_lists(places, kinds, old, new)
    for kind in places.kinds:
        layers = [(a, b) for k, a, b in zip(kinds, old.layers, new.layers, strict=True) if k == kind]
        _write_kind(places, kind, layers, listed)
    _repeat_next_to_kinds(places)
    if row.write is not None:
        row.write(new, data)


def _write_length(row: TextModel, data: dict[str, Any], config: dict[str, Any], length: int) -> None:
    names = row.names.length
    places_stated = [(data, name) for name in names if config.get(name) is not None]
    if isinstance(row, SequenceTower):
        levels = (data, data.get(row.nested) or {})
        places_stated += [
            (d, k) for d in levels for k, name in row.renamed.items() if name in names and d.get(k) is not None
        ]
    for level, name in places_stated or [(data, name) for name in names[:1]]:
        level[name] = length


def _repeat_next_to_kinds(places: Places) -> None:
    """The copy of base or type that may stand beside the layer types goes on repeating one of them."""
    kinds = places.row.kinds
    for rope in (places.data.get(name) or {} for name in places.row.dicts if kinds):
        for key in (*TYPES, EXCHANGED):
            inside = [level.get(key) for kind, level in rope.items() if kind in kinds and isinstance(level, dict)]
            if any(inside) and rope.get(key) not in (None, *inside):
                rope[key] = next(filter(None, inside))


def _write_lists(places: Places, kinds: list[str], old: ModelRotary, new: ModelRotary) -> bool:
    """Base and share of each layer, where the config lists them, or nothing but a list can say them."""
    name = places.row.bases
    stated = places.stated.get(name)
    if not isinstance(stated, list | tuple):
        if not name or (name == EXCHANGED and stated is None) or not _need_list(kinds, old, new):
            return False
        stated = [0.0] * len(old.layers)
    bases, shares = list(stated), list(places.stated.get(SHARES_LISTED) or [1.0] * len(stated))
    for i, (before, after) in enumerate(zip(old.layers, new.layers, strict=True)):
        if before is not None or after is not None:
            bases[i] = 0 if after is None else alike(bases[i], after.base)
        if before is not None and after is not None and before.rotary_dim != after.rotary_dim:
            shares[i] = share_of(after.rotary_dim, after.head_dim)
    places.data[name] = bases
    if len(same := {spec.base for spec in new.distinct}) == 1:  # of no effect then, and what others may read
        for kind in kinds:
            places.set_inside(kind, (EXCHANGED,), *same)
    if shares != list(places.stated.get(SHARES_LISTED) or [1.0] * len(stated)):
        if places.row.partial is None:
            raise ValueError(f"the code of {places.reading.model_type} rotates all channels of a head")
        places.data[SHARES_LISTED] = shares
    return True


def _need_list(kinds: list[str], old: ModelRotary, new: ModelRotary) -> bool:
    """Whether layers of one kind differ in their base, or other layers rotate than before."""
    bases: dict[str, set[float]] = {}
    for kind, spec in zip(kinds, new.layers, strict=True):
        bases.setdefault(kind, set()).update(() if spec is None else (spec.base,))
    rotates_elsewhere = [spec is None for spec in old.layers] != [spec is None for spec in new.layers]
    return rotates_elsewhere or any(len(different) > 1 for different in bases.values())


def alike(stated: Any, value: Any) -> Any:
    """``value``, without a fraction where a whole number was ``stated``: some config classes take nothing else.

    >>> alike(10_000, 500_000.0), alike(1.0, 4.0)
    (500000, 4.0)
    """
    whole = isinstance(stated, int) and isinstance(value, float) and value.is_integer()
    return int(value) if whole and not isinstance(stated, bool) else value


def _write_kind(places: Places, kind: str, layers: list[Layer], listed: bool) -> None:
    """What differs in the layers of one kind; the first layer in which a field differs speaks for all.

    ``listed``: the config lists base and width of each layer.
    """
    pairs = [(a, b) for a, b in layers if a is not None and b is not None]
    if not pairs:
        _rotate_or_not(places, kind, layers)
        return
    differ = {name: pair for pair in reversed(pairs) for name in pair[0].diff(pair[1])}
    if "base" in differ and not listed:
        old, new = differ["base"]
        _write_base(places, kind, old.base, new.base)
    scaled = [pair for pair in pairs if pair[0].scaling is not None] if places.lengthened else []
    if "scaling" in differ or scaled:
        before, after = (spec.scaling for spec in (differ["scaling"] if "scaling" in differ else scaled[0]))
        _write_scaling(places, kind, before, after)
    if "interleaved" in differ and places.row.interleave_key:
        places.data["rope_interleave"] = differ["interleaved"][1].interleaved
    for name in ("rotary_dim", "exponent_dim"):
        if name in differ and not listed:
            _write_width(places, kind, *differ[name])
    if "axes" in differ or "second" in differ:
        _write_sections(places, kind, (differ.get("axes") or differ["second"])[1])


def _write_base(places: Places, kind: str, old: float, base: float) -> None:
    parameters, row = places.parameters(kind), places.row
    places.set_top(tuple(key for key in BASES if places.stated.get(key) == old), base)  # also where nobody reads it
    inside = places.set_inside(kind, (EXCHANGED,), base)
    if places.set_top(parameters.top, base) or inside:
        return
    if row.write is not None and not row.dicts and not parameters.top:
        return  # the family has a key of its own, which its function writes
    if parameters.top and (places.style == OLD or not row.dicts):
        places.data[parameters.top[0]] = base
    else:
        places.add(kind, EXCHANGED, base)


def _write_scaling(places: Places, kind: str, old: Scaling | None, new: Scaling | None) -> None:
    in_configs = {scheme.scaling for scheme in SCHEMES.values()}
    if places.row.write is not None:  # its own function writes a scheme that no rope parameters say
        old, new = (None if type(scaling) not in in_configs else scaling for scaling in (old, new))
    if old is None and new is None:
        return
    if not places.row.scaled:
        raise ValueError(f"the code of {places.reading.model_type} has no scaling")
    for rope in places.ropes_or_new(kind):
        _put_scaling(places.reading, rope, places.data, old, new)
        bare = new is None and set(rope) <= set(TYPES) and not places.parameters(kind).more
        if bare and places.data.get(OLD) is rope:
            places.data[OLD] = None


def _write_width(places: Places, kind: str, old: RotarySpec, spec: RotarySpec) -> None:
    row, width = places.row, spec.exponent_dim or spec.rotary_dim
    if row.mla is not None:
        raise ValueError("in latent attention that is a shape of its weights")
    if row.partial is None:
        raise ValueError(f"the code of {places.reading.model_type} rotates all channels of a head")
    share = share_of(width, spec.head_dim)
    places.set_top(tuple(key for key in WIDTHS if places.stated.get(key) == old.rotary_dim), width)
    places.set_top(tuple(key for key in SHARES if places.stated.get(key) == old.rotary_dim / old.head_dim), share)
    stated = [places.set_top(row.shares, share), places.set_top(row.widths, width)]
    if not isinstance(spec.scaling, Proportional):
        stated.append(places.set_inside(kind, (FRACTION,), share))
    if any(stated):
        return
    if row.widths:
        places.data[row.widths[0]] = width
    elif places.style == OLD:
        places.data[row.shares[0]] = share
    else:
        places.add(kind, FRACTION, share)


def share_of(width: int, channels: int) -> float:
    """The share of ``channels`` that is ``width`` again, rounded down as models do.

    >>> share_of(32, 80)
    0.4
    """
    share = width / channels
    while int(channels * share) < width:
        share = math.nextafter(share, 2.0)
    return share


def _write_sections(places: Places, kind: str, spec: RotarySpec) -> None:
    sections = _sections(spec)
    if sections and not places.set_inside(kind, SECTIONS, sections):
        places.add(kind, SECTIONS[0], sections)
    for rope in places.ropes(kind) if isinstance(spec.axes, OneAxis) else ():
        for name in SECTIONS:
            rope.pop(name, None)


def _sections(spec: RotarySpec) -> list[int]:
    """The list from which the axes of a spec are read; empty where no list says them."""
    axes, second = spec.axes, spec.second
    if isinstance(axes, Sections):
        return list(axes.sections)
    if not isinstance(axes, Listed):
        return []
    if isinstance(second, Listed):  # over channels, both members of each pair
        both = (*axes.axis, *second.axis)
        return [both.count(axis) // 2 for axis in range(axes.count)]
    return [axes.axis.count(axis) for axis in (1, 2, 0)]  # height, width, time


def _rotate_or_not(places: Places, kind: str, layers: list[Layer]) -> None:
    """Null stands for the parameters of layers that do not rotate, where the family's code knows that."""
    wanted = [b for _, b in layers if b is not None]
    if not places.row.kinds or places.row.defaults(kind) is not None:
        return
    if wanted:
        places.add(kind, EXCHANGED, wanted[0].base)
        _write_scaling(places, kind, None, wanted[0].scaling)
    elif any(a is not None for a, _ in layers):
        places.data[NEW] = {**(places.data.get(NEW) or {}), kind: None}


def _put_scaling(
    reading: TextReading, rope: dict[str, Any], top: dict[str, Any], old: Scaling | None, new: Scaling | None
) -> None:
    """Make the dictionary ``rope``, from which ``old`` was read, say ``new``; ``top`` may state the original length.

    Keys that say so already stay. ``factor`` is stated in any case: it may have followed from a length that changes.
    """
    (_, scheme_before), (name, scheme) = scheme_for(old), scheme_for(new)
    before, after = scheme_before.write(old), scheme.write(new)
    if scheme is not scheme_before:
        outdated = {entry.key for each in SCHEMES.values() for entry in each.entries}.union(MORE) - {FRACTION, *before}
        for key in outdated:
            rope.pop(key, None)
    for key in {**before, **after}:
        stated = rope.get(key) is not None or (key == ORIGINAL and top.get(key) is not None)
        if before.get(key) == after.get(key) and (stated or key != "factor") and scheme is scheme_before:
            continue
        if key not in after:
            rope.pop(key, None)
            continue
        if key == ORIGINAL and top.get(key) is not None:
            top[key] = after[key]
            if rope.get(key) is None:
                continue
        rope[key] = after[key]
    if scheme is not scheme_before:
        word = _word(reading, rope, name)
        for key in [key for key in TYPES if key in rope] or TYPES[:1]:
            rope[key] = word


def _word(reading: TextReading, rope: dict[str, Any], name: str) -> str:
    """The family's word for a scheme."""
    spelled = reading.row.scheme_names
    for word in (name, *spelled):
        meant = spelled.get(word, "" if word in FAMILY_SCHEMES else word)
        if name == (meant(Keys([("", rope)], {})) if callable(meant) else meant):
            return word
    raise ValueError(f"the code of {reading.model_type} has no scaling {name!r}")
