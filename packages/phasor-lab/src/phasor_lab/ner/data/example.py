"""A text with its entities: the one form that every file is read into, and the rules that it keeps."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ...run_folder.files import shown
from .lines import Location

HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair: JSON can spell it, no UTF-8 can hold it


@dataclass(frozen=True, order=True)
class Entity:
    """The characters ``start`` to ``end`` (half-open) of a text, and what they are.

    >>> text = "Ada met Bob"
    >>> bob = Entity(8, 11, "person")
    >>> text[bob.start : bob.end]
    'Bob'
    """

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Example:
    """One text with its entities, in order and without repetitions; ``source`` says where it stands, as file:line."""

    text: str
    entities: tuple[Entity, ...]
    source: str


def labels_of(examples: Iterable[Example]) -> tuple[str, ...]:
    """The labels that occur, sorted.

    >>> labels_of([Example("Ada", (Entity(0, 3, "person"),), "a.json:1"), Example("so", (), "a.json:2")])
    ('person',)
    """
    return tuple(sorted({entity.label for example in examples for entity in example.entities}))


@dataclass(frozen=True)
class StatedSpan:
    """An entity as its file states it, half-open and not checked yet; its text if stated."""

    start: Any
    end: Any
    label: Any
    surface: Any = None


def checked(location: Location, text: Any, spans: Iterable[StatedSpan], labels: Collection[str] | None) -> Example:
    """The example, or ``ValueError`` for the first rule that is broken, and where; ``labels`` None allows all."""
    check_text(location, text)
    entities: set[Entity] = set()
    for span in spans:
        entity = _entity(location, text, span)
        check_label(location, entity.label, labels)
        if entity in entities:
            raise location.fault(f"entities must differ, got {_described(span)} twice; delete one")
        entities.add(entity)
    return Example(text, tuple(sorted(entities)), str(location))


def check_text(location: Location, text: Any, name: str = "text") -> None:
    """Refuse what is not a string of characters with something to read in it."""
    if not isinstance(text, str):
        raise location.fault(f"{name} must be a string, got {shown(text)}")
    if not text.strip():
        raise location.fault(f"{name} must not be empty or only white space, got {shown(text)}; delete the sentence")
    if HALF.search(text):
        raise location.fault(f"{name} must be Unicode characters, got half a surrogate pair in {shown(text)}")


def check_label(location: Location, label: Any, labels: Collection[str] | None) -> None:
    """Refuse what is not a name, or not one of ``labels``."""
    if not isinstance(label, str) or not label.strip():
        raise location.fault(f"label must be a name, got {shown(label)}")
    if labels is not None and label not in labels:
        known = ", ".join(sorted(labels))
        raise location.fault(
            f"label must be one of {known}, got {shown(label)}; correct it, or have it in the training data"
        )


def _entity(location: Location, text: str, span: StatedSpan) -> Entity:
    for name, value in (("start", span.start), ("end", span.end)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise location.fault(f"{name} must be an integer, got {shown(value)} in {_described(span)}")
    start, end = span.start, span.end
    if end <= start:
        raise location.fault(f"end must be after start (end is not included), got {_described(span)}")
    if start < 0 or end > len(text):
        raise location.fault(f"entity must lie in the text, 0 to {len(text)}, got {_described(span)}")
    if span.surface is not None and span.surface != text[start:end]:
        raise location.fault(
            f"entity must read as the text does, got {shown(span.surface)} for {_described(span)}, "
            f"where the text has {shown(text[start:end])}"
        )
    return Entity(start, end, span.label)


def _described(span: StatedSpan) -> str:
    return f"{shown(span.label)} from {shown(span.start)} to {shown(span.end)}"
