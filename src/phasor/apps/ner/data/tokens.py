"""JSON lines of ``{"tokens": [...], "ner_tags": [...]}``, as Hugging Face's data sets have them."""

from collections.abc import Sequence
from typing import Any

from .lines import member
from .place import Place, shown
from .tags import Sentence

TAGS, NESTED = "ner_tags", "nested_ner_tags"  # the second where all lines have it (GermEval 2014)


def sentences(items: list[tuple[Place, dict[str, Any]]], tag_names: Sequence[str] | None) -> list[Sentence]:
    """Tags are names, or numbers that ``tag_names`` names (the names of the data set's ClassLabel)."""
    nested = any(NESTED in item for _, item in items)
    return [_sentence(place, item, (TAGS, NESTED)[: 1 + nested], tag_names) for place, item in items]


def _sentence(place: Place, item: dict[str, Any], keys: Sequence[str], tag_names: Sequence[str] | None) -> Sentence:
    tokens = member(place, item, "tokens", list, "a list of strings")
    if not tokens:
        raise place.fault("tokens must not be empty; delete the sentence")
    columns = []
    for key in keys:
        tags = member(place, item, key, list, "a list of tags, as in the other lines")
        if len(tags) != len(tokens):
            raise place.fault(f"{key} must have one tag a token, {len(tokens)} here, got {len(tags)}")
        columns.append([_name(place, tag, tag_names) for tag in tags])
    return Sentence(tokens, [place] * len(tokens), columns)


def _name(place: Place, tag: Any, tag_names: Sequence[str] | None) -> str:
    if isinstance(tag, str):
        return tag
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise place.fault(f"tag must be a name or a number, got {shown(tag)}")
    if tag_names is None:
        raise place.fault(
            f"tag must be a name, got the number {tag}; name them in order: tag_names, --tag-names O,B-...,I-..."
        )
    if not 0 <= tag < len(tag_names):
        raise place.fault(f"tag must be a number from 0 to {len(tag_names) - 1}, an index of tag_names, got {tag}")
    return tag_names[tag]
