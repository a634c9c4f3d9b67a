"""Base, scaling, width and sections of a text model, changed where its config states them, or added in its style."""

import math

from ...rotary.axes import Listed, OneAxis, Sections
from ...rotary.scaling import Proportional, Scaling
from ...rotary.spec import RotarySpec
from .leftovers import BASES, SHARES, WIDTHS
from .schemes import SCHEMES, TYPES
from .spec_fields import EXCHANGED
from .write_places import NEW, OLD, Places
from .write_scaling import FRACTION, put_scaling

SECTIONS = ("mrope_section", "xdrope_section")
Layer = tuple[RotarySpec | None, RotarySpec | None]  # as the config says it, and as it shall


def write_kind(places: Places, kind: str, layers: list[Layer], listed: bool) -> None:
    """What differs in the layers of one kind; the first layer in which a field differs speaks for all.

    ``listed``: the config lists base and width of each layer.
    """
    pairs = [(a, b) for a, b in layers if a is not None and b is not None]
    if not pairs:
        _turn_on_or_off(places, kind, layers)
        return
    differ = {name: pair for pair in reversed(pairs) for name in pair[0].diff(pair[1])}
    if "base" in differ and not listed:
        old, new = differ["base"]
        _write_base(places, kind, old.base, new.base)
    scaled = [pair for pair in pairs if pair[0].scaling is not None] if places.lengthened else []
    if "scaling" in differ or scaled:
        before, after = (spec.scaling for spec in (differ["scaling"] if "scaling" in differ else scaled[0]))
        _write_scaling(places, kind, before, after)
    if "interleaved" in differ and places.facts.interleave_key:
        places.data["rope_interleave"] = differ["interleaved"][1].interleaved
    for name in ("rotary_dim", "exponent_dim"):
        if name in differ and not listed:
            _write_width(places, kind, *differ[name])
    if "axes" in differ or "second" in differ:
        _write_sections(places, kind, (differ.get("axes") or differ["second"])[1])


def _write_base(places: Places, kind: str, old: float, base: float) -> None:
    parameters, factor = places.parameters(kind), places.facts.base_factor
    places.set_top(tuple(key for key in BASES if places.seen.get(key) == old), base)  # also where nobody reads it
    stated = base / (places.seen.get(factor) or 1)
    inside = places.set_inside(kind, (EXCHANGED,), stated)
    if places.set_top(parameters.top, stated) or inside:
        return
    if factor and parameters.base is not None:
        places.data[factor] = base / parameters.base
    elif parameters.top and (places.style == OLD or not places.facts.dicts):
        places.data[parameters.top[0]] = base
    else:
        places.add(kind, EXCHANGED, base)


def _write_scaling(places: Places, kind: str, old: Scaling | None, new: Scaling | None) -> None:
    made = {scheme.made for scheme in SCHEMES.values()}
    if places.facts.write is not None:  # its own function writes a scheme that no rope parameters say
        old, new = (None if type(scaling) not in made else scaling for scaling in (old, new))
    if old is None and new is None:
        return
    if not places.facts.scaled:
        raise ValueError(f"the code of {places.reader.model_type} has no scaling")
    for rope in places.ropes_or_new(kind):
        put_scaling(places.reader, rope, places.data, old, new)
        bare = new is None and set(rope) <= set(TYPES) and not places.parameters(kind).more
        if bare and places.data.get(OLD) is rope:
            places.data[OLD] = None


def _write_width(places: Places, kind: str, old: RotarySpec, spec: RotarySpec) -> None:
    facts, width = places.facts, spec.exponent_dim or spec.rotary_dim
    if facts.mla is not None:
        raise ValueError("in latent attention that is a shape of its weights")
    if facts.partial is None:
        raise ValueError(f"the code of {places.reader.model_type} turns all channels of a head")
    share = share_of(width, spec.head_dim)
    places.set_top(tuple(key for key in WIDTHS if places.seen.get(key) == old.rotary_dim), width)
    places.set_top(tuple(key for key in SHARES if places.seen.get(key) == old.rotary_dim / old.head_dim), share)
    stated = [places.set_top(facts.shares, share), places.set_top(facts.widths, width)]
    if not isinstance(spec.scaling, Proportional):
        stated.append(places.set_inside(kind, (FRACTION,), share))
    if any(stated):
        return
    if facts.widths:
        places.data[facts.widths[0]] = width
    elif places.style == OLD:
        places.data[facts.shares[0]] = share
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


def _turn_on_or_off(places: Places, kind: str, layers: list[Layer]) -> None:
    """Null stands for the parameters of layers that do not rotate, where the family's code knows that."""
    wanted = [b for _, b in layers if b is not None]
    if not places.facts.kinds or places.facts.defaults(kind) is not None:
        return
    if wanted:
        places.add(kind, EXCHANGED, wanted[0].base)
        _write_scaling(places, kind, None, wanted[0].scaling)
    elif any(a is not None for a, _ in layers):
        places.data[NEW] = {**(places.data.get(NEW) or {}), kind: None}
