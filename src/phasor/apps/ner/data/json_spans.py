"""The JSON formats that give a text and character spans: CLUENER, CMeEE, and plain spans."""

from collections.abc import Iterator
from typing import Any

from .check import Span
from .lines import member
from .place import Place, shown


def cluener(place: Place, item: dict[str, Any]) -> tuple[str, Iterator[Span]]:
    """``{"text": ..., "label": {label: {surface: [[start, end], ...]}}}``, ends included."""
    return _text(place, item), _cluener_spans(place, item)


def _cluener_spans(place: Place, item: dict[str, Any]) -> Iterator[Span]:
    labels = member(place, item, "label", dict, "an object: label, surface, pairs")
    for label, surfaces in labels.items():
        if not isinstance(surfaces, dict):
            raise place.fault(f"label {shown(label)} must be an object of surfaces, got {shown(surfaces)}")
        for surface, pairs in surfaces.items():
            if not isinstance(pairs, list) or not pairs:
                raise place.fault(f"surface {shown(surface)} must have a list of [start, end], got {shown(pairs)}")
            for pair in pairs:
                if not isinstance(pair, list) or len(pair) != 2:
                    raise place.fault(f"surface {shown(surface)} must have pairs [start, end], got {shown(pair)}")
                start, end = pair
                yield Span(start, end, label, surface, inclusive=True)


def cmeee(place: Place, item: dict[str, Any]) -> tuple[str, Iterator[Span]]:
    """``{"text": ..., "entities": [{"start_idx", "end_idx", "type", "entity"}]}``, ends included."""
    keys = ("start_idx", "end_idx", "type")
    return _text(place, item), _spans(place, item, "entities", keys, "entity", inclusive=True)


def spans(place: Place, item: dict[str, Any]) -> tuple[str, Iterator[Span]]:
    """``{"text": ..., "spans" or "entities": [{"start", "end", "label"}]}``, half-open; a span's "text" is checked."""
    if "spans" in item and "entities" in item:
        raise place.fault("item must have one list of entities, got 'spans' and 'entities'; delete one")
    key = "entities" if "entities" in item else "spans"
    return _text(place, item), _spans(place, item, key, ("start", "end", "label"), "text", inclusive=False)


def _text(place: Place, item: dict[str, Any]) -> str:
    return member(place, item, "text", str, "a string")


def _spans(
    place: Place, item: dict[str, Any], name: str, keys: tuple[str, str, str], surface: str, *, inclusive: bool
) -> Iterator[Span]:
    for entity in member(place, item, name, list, "a list of objects, empty if there is none"):
        if not isinstance(entity, dict):
            raise place.fault(f"{name} must be a list of objects, got {shown(entity)} in it")
        for key in keys:
            if key not in entity:
                raise place.fault(f"entity must have the key {key!r}, got {shown(entity)}")
        start, end, label = (entity[key] for key in keys)
        yield Span(start, end, label, entity.get(surface), inclusive)
