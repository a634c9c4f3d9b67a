"""Tagged tokens, from columns or JSON, as texts with spans: IOB2 (BIO), or BIOES, which marks the last token too."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...run_folder.files import shown
from .example import Example, StatedSpan, check_label, check_text, checked
from .lines import Location, member

DOCUMENT = "-DOCSTART-"
TAGS, NESTED = "ner_tags", "nested_ner_tags"  # the second where all lines have it (GermEval 2014)
TAG = re.compile(r"O|([BIES])-(\S.*)")
Row = tuple[Location, list[str]]  # of a token: where it stands, and its cells
Run = tuple[int, int, str]  # first token, last token, label


@dataclass(frozen=True)
class Sentence:
    """Tokens, the location of each, and one list of tags per column."""

    tokens: Sequence[str]
    locations: Sequence[Location]
    columns: Sequence[Sequence[str]]


def examples_of(sentences: Sequence[Sentence], labels: Collection[str] | None) -> list[Example]:
    """The tokens joined by one space; the entities of all columns.

    A column with E- or S- is BIOES, another IOB2. Raises ``ValueError`` where one of its tags breaks the scheme.
    """
    width = len(sentences[0].columns) if sentences else 0
    columns = [list(_column(sentences, column)) for column in range(width)]
    return [_example(sentence, [runs[i] for runs in columns], labels) for i, sentence in enumerate(sentences)]


def _example(sentence: Sentence, columns: list[list[Run]], labels: Collection[str] | None) -> Example:
    ends, at = [], -1
    for token, location in zip(sentence.tokens, sentence.locations, strict=True):
        check_text(location, token, "token")
        at += 1 + len(token)
        ends.append(at)
    spans = []
    for first, last, label in (run for runs in columns for run in runs):
        check_label(sentence.locations[first], label, labels)
        spans.append(StatedSpan(ends[first] - len(sentence.tokens[first]), ends[last], label))
    return checked(sentence.locations[0], " ".join(sentence.tokens), spans, labels)


def _column(sentences: Sequence[Sentence], column: int) -> Iterator[list[Run]]:
    pairs = [[_split(p, tag) for p, tag in zip(s.locations, s.columns[column], strict=True)] for s in sentences]
    closed = any(prefix in "ES" for tags in pairs for prefix, _ in tags)
    for sentence, tags in zip(sentences, pairs, strict=True):
        yield _runs(sentence.locations, tags, closed)


def _split(location: Location, tag: str) -> tuple[str, str]:
    match = TAG.fullmatch(tag)
    if not match:
        raise location.fault(f"tag must be O or B-, I-, E-, S- and a label (IOB2 or BIOES), got {shown(tag)}")
    return (match[1] or "O", match[2] or "")


def _runs(locations: Sequence[Location], tags: list[tuple[str, str]], closed: bool) -> list[Run]:
    """The entities of a sentence; ``closed``: each ends with E- or S-."""
    runs: list[Run] = []
    first, inside = 0, ""  # where the open entity began, and its label
    for i, (prefix, label) in enumerate([*tags, ("O", "")]):
        if prefix in "IE":
            if label != inside:
                before = shown("-".join(tags[i - 1]).rstrip("-")) if i else "the beginning"
                raise locations[i].fault(
                    f"tags must be IOB2 or BIOES, where an entity begins with B- or S-, got "
                    f"{shown(f'{prefix}-{label}')} after {before}; convert the file"
                )
        elif inside:
            if closed:
                raise locations[min(i, len(tags) - 1)].fault(
                    f"tags must be of one scheme; others end each entity (E-, S-), got {shown(inside)} without an end"
                )
            runs.append((first, i - 1, inside))
        if prefix in "BS":
            first = i
        if prefix in "ES":
            runs.append((first, i, label))
        inside = label if prefix in "BI" else ""
    return runs


def read_rows(path: Path, lines: list[str]) -> list[list[Row]]:
    """The cells of each token, by sentence. Lines of nothing but spaces or tabs part sentences, any number of them,
    and so do lines that begin with -DOCSTART-.

    Cells are parted by tabs if the first line with cells has one, by spaces otherwise.
    """
    first = next((line for line in lines if line.strip(" \t")), "")
    blocks: list[list[Row]] = [[]]
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip(" ") for cell in line.split("\t")] if "\t" in first else re.findall(r"[^ \t]+", line)
        if any(cells) and cells[0] != DOCUMENT:
            blocks[-1].append((Location(path, number), cells))
        elif blocks[-1]:
            blocks.append([])
    return [rows for rows in blocks if rows]


def sentences_of_columns(path: Path, lines: list[str], columns: Sequence[int] | None) -> list[Sentence]:
    """Tokens are the first cell, or the second where the first counts them (GermEval 2014, with its # comments).

    ``columns``: the cells that hold tags, counted from 0; by default all after the token.
    """
    blocks = read_rows(path, lines)
    token = int(_numbered(blocks))
    if token:
        blocks = [[row for row in rows if row[1][0] != "#"] for rows in blocks]
    blocks = [rows for rows in blocks if rows]
    if not blocks:
        raise Location(path, 1).fault("file must hold at least one sentence, got none")
    width = len(blocks[0][0][1])
    for location, cells in (row for rows in blocks for row in rows):
        if len(cells) != width:
            raise location.fault(f"line must have {width} columns like the first, got {len(cells)}: {shown(cells)}")
    chosen = _tag_columns(blocks, token, columns)
    return [
        Sentence(
            [cells[token] for _, cells in rows],
            [location for location, _ in rows],
            [[cells[column] for _, cells in rows] for column in chosen],
        )
        for rows in blocks
    ]


def is_tagged(lines: list[str]) -> bool:
    """Whether one of the first lines with cells ends with a tag."""
    rows = [cells for line in lines[:50] if (cells := line.split())]
    return any(len(cells) > 1 and TAG.fullmatch(cells[-1]) for cells in rows[:3])


def _numbered(blocks: list[list[Row]]) -> bool:
    counted = [[cells for _, cells in rows if cells[0] != "#"] for rows in blocks]
    return bool(blocks) and all(
        len(cells) > 2 and cells[0] == str(i) for rows in counted for i, cells in enumerate(rows, start=1)
    )


def _tag_columns(blocks: list[list[Row]], token: int, columns: Sequence[int] | None) -> Sequence[int]:
    location, cells = blocks[0][0]
    if columns is not None:
        if not columns or not all(token < column < len(cells) for column in columns):
            raise location.fault(f"columns must be numbers from {token + 1} to {len(cells) - 1}, got {list(columns)}")
        return columns
    if len(cells) < token + 2:
        raise location.fault(f"line must have a token and at least one tag, got {shown(cells)}")
    for column in range(token + 1, len(cells)):
        values = {row[column] for rows in blocks for _, row in rows}
        others = {value for value in values if not TAG.fullmatch(value)}
        for location, row in (row for rows in blocks for row in rows if others):
            if row[column] in others:
                raise location.fault(
                    f"column {column} must hold tags (O, B-label, I-label, ...; IOB2 or BIOES), "
                    f"got {shown(row[column])}; "
                    "if it holds something else, name the columns of tags (columns, --column), counted from 0"
                )
    return range(token + 1, len(cells))


def sentences_of_tokens(
    items: list[tuple[Location, dict[str, Any]]], tag_names: Sequence[str] | None
) -> list[Sentence]:
    """Tags are names, or numbers that ``tag_names`` names (the names of the data set's ClassLabel)."""
    nested = any(NESTED in item for _, item in items)
    return [_sentence(location, item, (TAGS, NESTED)[: 1 + nested], tag_names) for location, item in items]


def _sentence(
    location: Location, item: dict[str, Any], keys: Sequence[str], tag_names: Sequence[str] | None
) -> Sentence:
    tokens = member(location, item, "tokens", list, "a list of strings")
    if not tokens:
        raise location.fault("tokens must not be empty; delete the sentence")
    columns = []
    for key in keys:
        tags = member(location, item, key, list, "a list of tags, as in the other lines")
        if len(tags) != len(tokens):
            raise location.fault(f"{key} must have one tag a token, {len(tokens)} here, got {len(tags)}")
        columns.append([_name(location, tag, tag_names) for tag in tags])
    return Sentence(tokens, [location] * len(tokens), columns)


def _name(location: Location, tag: Any, tag_names: Sequence[str] | None) -> str:
    if isinstance(tag, str):
        return tag
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise location.fault(f"tag must be a name or a number, got {shown(tag)}")
    if tag_names is None:
        raise location.fault(
            f"tag must be a name, got the number {tag}; name them in order: tag_names, --tag-names O,B-...,I-..."
        )
    if not 0 <= tag < len(tag_names):
        raise location.fault(f"tag must be a number from 0 to {len(tag_names) - 1}, an index of tag_names, got {tag}")
    return tag_names[tag]
