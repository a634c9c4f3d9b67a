"""Columns of tagged tokens as texts with spans: IOB2 (BIO), as CoNLL, WNUT and GermEval publish them."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from ...run_folder.files import shown
from .example import Example, StatedSpan, check_label, check_text, checked
from .lines import Location

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|([BI])-(\S.*)")
Row = tuple[Location, list[str]]  # of a token: where it stands, and its cells


def examples_of_columns(
    path: Path, lines: list[str], columns: Sequence[int] | None, labels: Collection[str] | None
) -> list[Example]:
    """The tokens of each sentence joined by one space; the entities of all columns of tags.

    Tokens are the first cell, or the second where the first counts them (GermEval 2014, with its # comments).
    ``columns``: the cells that hold tags, counted from 0; by default all after the token.
    """
    blocks = _blocks(path, lines)
    token = int(_numbered(blocks))
    if token:
        blocks = [some for rows in blocks if (some := [row for row in rows if row[1][0] != "#"])]
    if not blocks:
        raise Location(path, 1).fault("file must hold at least one sentence, got none")
    width = len(blocks[0][0][1])
    for location, cells in (row for rows in blocks for row in rows):
        if len(cells) != width:
            raise location.fault(f"line must have {width} columns like the first, got {len(cells)}: {shown(cells)}")
    location, cells = blocks[0][0]
    if columns is None and width < token + 2:
        raise location.fault(f"line must have a token and at least one tag, got {shown(cells)}")
    chosen = range(token + 1, width) if columns is None else columns
    if not chosen or not all(token < column < width for column in chosen):
        raise location.fault(f"columns must be numbers from {token + 1} to {width - 1}, got {list(chosen)}")
    return [_example(rows, token, chosen, labels) for rows in blocks]


def _blocks(path: Path, lines: list[str]) -> list[list[Row]]:
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


def _numbered(blocks: list[list[Row]]) -> bool:
    counted = [[cells for _, cells in rows if cells[0] != "#"] for rows in blocks]
    return bool(blocks) and all(
        len(cells) > 2 and cells[0] == str(i) for rows in counted for i, cells in enumerate(rows, start=1)
    )


def _example(rows: list[Row], token: int, columns: Sequence[int], labels: Collection[str] | None) -> Example:
    tokens, ends, at = [cells[token] for _, cells in rows], [], -1
    for (location, _), word in zip(rows, tokens, strict=True):
        check_text(location, word, "token")
        at += 1 + len(word)
        ends.append(at)
    spans = []
    for first, last, label in (run for column in columns for run in _runs(rows, column)):
        check_label(rows[first][0], label, labels)
        spans.append(StatedSpan(ends[first] - len(tokens[first]), ends[last], label))
    return checked(rows[0][0], " ".join(tokens), spans, labels)


def _runs(rows: list[Row], column: int) -> list[tuple[int, int, str]]:
    """The entities of a sentence in one column: first token, last token, label."""
    runs: list[tuple[int, int, str]] = []
    inside = ""
    for i, (location, cells) in enumerate(rows):
        match = TAG.fullmatch(cells[column])
        if not match:
            raise location.fault(
                f"column {column} must hold tags (O, B-label, I-label; IOB2), got {shown(cells[column])}; if it holds "
                "something else, name the columns of tags (columns, --column), counted from 0"
            )
        prefix, label = match[1], match[2] or ""
        if prefix == "B":
            runs.append((i, i, label))
        elif prefix == "I" and label == inside:
            runs[-1] = (runs[-1][0], i, label)
        elif prefix == "I":
            before = shown(rows[i - 1][1][column]) if i else "the beginning"
            raise location.fault(
                f"tags must be IOB2, where an entity begins with B-, got {shown(cells[column])} after {before}; "
                "convert the file"
            )
        inside = label
    return runs
