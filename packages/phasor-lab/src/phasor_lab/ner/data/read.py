"""One way to read a file of texts with entities: JSON lines, or columns of tokens and tags."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...run_folder.files import shown
from .example import Example, StatedSpan, checked
from .lines import Location, json_lines, member, read_lines
from .tagged import TAG, examples_of_columns


def read(
    path: str | Path, *, labels: Collection[str] | None = None, columns: Sequence[int] | None = None
) -> list[Example]:
    """The examples of a UTF-8 file, all of them or none. A first line that begins as JSON and does not end with a tag
    says that it holds JSON lines.

    - JSON lines: ``{"text", "spans": [{"start", "end", "label"}]}``, half-open;
    - columns (CoNLL): a token a line with its tags in IOB2 (BIO), an empty line after each sentence. ``columns``
      (counted from 0; default: all after the token) may be several, for nested entities. The text is the tokens joined
      by one space.

    With ``labels`` other labels are refused. Raises ``ValueError``, one line with file, line and rule, for the first
    thing that is wrong in the file.
    """
    path = Path(path)
    lines = read_lines(path)
    first = next(line for line in lines if line.strip()).strip()
    if not first.startswith(("{", "[")) or TAG.fullmatch(first.split()[-1]):
        return examples_of_columns(path, lines, columns, labels)
    return [checked(location, *_text_and_spans(location, item), labels) for location, item in json_lines(path, lines)]


def _text_and_spans(location: Location, item: dict[str, Any]) -> tuple[str, Iterator[StatedSpan]]:
    """A span's own ``"text"`` is checked where it is stated."""
    return member(location, item, "text", str, "a string"), _spans(location, item)


def _spans(location: Location, item: dict[str, Any]) -> Iterator[StatedSpan]:
    for entity in member(location, item, "spans", list, "a list of objects, empty if there is none"):
        if not isinstance(entity, dict):
            raise location.fault(f"spans must be a list of objects, got {shown(entity)} in it")
        for key in ("start", "end", "label"):
            if key not in entity:
                raise location.fault(f"entity must have the key {key!r}, got {shown(entity)}")
        yield StatedSpan(entity["start"], entity["end"], entity["label"], entity.get("text"))
