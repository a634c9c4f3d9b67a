"""A text and its entities: the one form that every file format is read into."""

from collections.abc import Iterable
from dataclasses import dataclass


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
