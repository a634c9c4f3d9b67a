"""One way to read a file of texts with entities, whatever its format."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...run_folder.files import shown
from .example import Example, StatedSpan, checked
from .lines import Location, json_array, json_lines, member, read_lines
from .tagged import examples_of, is_tagged, sentences_of_columns, sentences_of_tokens

FORMATS = ("cluener", "cmeee", "conll", "spans", "tokens")


def read(
    path: str | Path,
    format: str | None = None,
    *,
    labels: Collection[str] | None = None,
    columns: Sequence[int] | None = None,
    tag_names: Sequence[str] | None = None,
) -> list[Example]:
    """The examples of a UTF-8 file, all of them or none.

    - ``"cluener"``: JSON lines ``{"text", "label": {label: {surface: [[start, end]]}}}``, ends included;
    - ``"cmeee"``: one JSON array of ``{"text", "entities": [{"start_idx", "end_idx", "type"}]}``, ends included;
    - ``"conll"``: columns of tokens and tags, a token a line, an empty line after each sentence; tags in IOB2
      (BIO) or BIOES, ``columns`` (counted from 0; default: all after the token) may be several, for nested
      entities. The text is the tokens joined by one space;
    - ``"spans"``: JSON lines ``{"text", "spans" or "entities": [{"start", "end", "label"}]}``, half-open;
    - ``"tokens"``: JSON lines ``{"tokens", "ner_tags"}``; tags that are numbers are named by ``tag_names``.

    ``format`` None tells the format from the content. With ``labels`` other labels are refused. Raises ``ValueError``,
    one line with file, line and rule, for the first thing that is wrong in the file.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise ValueError(
            f"format must be one of {', '.join(FORMATS)}, or None to tell it from the content, got {format!r}"
        )
    lines = read_lines(path)
    format = format or _format_of(path, lines)
    if format == "conll":
        return examples_of(sentences_of_columns(path, lines, columns), labels)
    items = list(json_array(path, lines) if format == "cmeee" else json_lines(path, lines))
    if not items:
        raise Location(path, 1).fault("file must hold at least one sentence, got none")
    if format == "tokens":
        return examples_of(sentences_of_tokens(items, tag_names), labels)
    parse = {"cluener": _cluener, "cmeee": _cmeee, "spans": _plain}[format]
    return [checked(location, *parse(location, item), labels) for location, item in items]


def _format_of(path: Path, lines: list[str]) -> str:
    if is_tagged(lines):
        return "conll"
    start = next(line for line in lines if line.strip()).strip()
    if any('"start_idx"' in line for line in lines):
        return "cmeee"
    if start.startswith("{"):
        _, item = next(json_lines(path, lines))
        if format := _format_of_keys(item):
            return format
    raise Location(path, 1).fault(
        f"format cannot be told from the content, got {shown(start[:40])}; name it, one of {', '.join(FORMATS)}"
    )


def _format_of_keys(item: dict[str, Any]) -> str | None:
    if "tokens" in item:
        return "tokens"
    if isinstance(item.get("label"), dict):
        return "cluener"
    return "spans" if "text" in item and ("spans" in item or "entities" in item) else None


def _cluener(location: Location, item: dict[str, Any]) -> tuple[str, Iterator[StatedSpan]]:
    """``{"text": ..., "label": {label: {surface: [[start, end], ...]}}}``, ends included."""
    return _text(location, item), _cluener_spans(location, item)


def _cluener_spans(location: Location, item: dict[str, Any]) -> Iterator[StatedSpan]:
    labels = member(location, item, "label", dict, "an object: label, surface, pairs")
    for label, surfaces in labels.items():
        if not isinstance(surfaces, dict):
            raise location.fault(f"label {shown(label)} must be an object of surfaces, got {shown(surfaces)}")
        for surface, pairs in surfaces.items():
            if not isinstance(pairs, list) or not pairs:
                raise location.fault(f"surface {shown(surface)} must have a list of [start, end], got {shown(pairs)}")
            for pair in pairs:
                if not isinstance(pair, list) or len(pair) != 2:
                    raise location.fault(f"surface {shown(surface)} must have pairs [start, end], got {shown(pair)}")
                start, end = pair
                yield StatedSpan(start, end, label, surface, inclusive=True)


def _cmeee(location: Location, item: dict[str, Any]) -> tuple[str, Iterator[StatedSpan]]:
    """``{"text": ..., "entities": [{"start_idx", "end_idx", "type", "entity"}]}``, ends included."""
    keys = ("start_idx", "end_idx", "type")
    return _text(location, item), _spans(location, item, "entities", keys, "entity", inclusive=True)


def _plain(location: Location, item: dict[str, Any]) -> tuple[str, Iterator[StatedSpan]]:
    """``{"text": ..., "spans" or "entities": [{"start", "end", "label"}]}``, half-open; a span's "text" is checked."""
    if "spans" in item and "entities" in item:
        raise location.fault("item must have one list of entities, got 'spans' and 'entities'; delete one")
    key = "entities" if "entities" in item else "spans"
    return _text(location, item), _spans(location, item, key, ("start", "end", "label"), "text", inclusive=False)


def _text(location: Location, item: dict[str, Any]) -> str:
    return member(location, item, "text", str, "a string")


def _spans(
    location: Location, item: dict[str, Any], name: str, keys: tuple[str, str, str], surface: str, *, inclusive: bool
) -> Iterator[StatedSpan]:
    for entity in member(location, item, name, list, "a list of objects, empty if there is none"):
        if not isinstance(entity, dict):
            raise location.fault(f"{name} must be a list of objects, got {shown(entity)} in it")
        for key in keys:
            if key not in entity:
                raise location.fault(f"entity must have the key {key!r}, got {shown(entity)}")
        start, end, label = (entity[key] for key in keys)
        yield StatedSpan(start, end, label, entity.get(surface), inclusive)
