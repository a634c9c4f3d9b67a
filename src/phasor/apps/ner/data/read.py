"""One way to read a file of texts with entities, whatever its format."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from . import conll, json_spans, tokens
from .check import checked
from .example import Example
from .lines import json_array, json_lines, read_lines
from .place import Place, shown
from .tags import examples_of

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
    - ``"conll"``: columns of tokens and tags, a token a line, an empty line after each sentence; tags in BIO, IOB1,
      BIOES, BILOU or BMES, ``columns`` (counted from 0; default: all after the token) may be several, for nested
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
    format = format or _told(path, lines)
    if format == "conll":
        return examples_of(conll.sentences(path, lines, columns), labels)
    items = list(json_array(path, lines) if format == "cmeee" else json_lines(path, lines))
    if not items:
        raise Place(path, 1).fault("file must hold at least one sentence, got none")
    if format == "tokens":
        return examples_of(tokens.sentences(items, tag_names), labels)
    parse = {"cluener": json_spans.cluener, "cmeee": json_spans.cmeee, "spans": json_spans.spans}[format]
    return [checked(place, *parse(place, item), labels) for place, item in items]


def _told(path: Path, lines: list[str]) -> str:
    if conll.is_tagged(lines):
        return "conll"
    start = next(line for line in lines if line.strip()).strip()
    if any('"start_idx"' in line for line in lines):
        return "cmeee"
    if start.startswith("{"):
        _, item = next(json_lines(path, lines))
        if found := _told_by_keys(item):
            return found
    raise Place(path, 1).fault(
        f"format cannot be told from the content, got {shown(start[:40])}; name it, one of {', '.join(FORMATS)}"
    )


def _told_by_keys(item: dict[str, Any]) -> str | None:
    if "tokens" in item:
        return "tokens"
    if isinstance(item.get("label"), dict):
        return "cluener"
    return "spans" if "text" in item and ("spans" in item or "entities" in item) else None
