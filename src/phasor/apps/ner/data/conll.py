"""Files of columns: a token a line, its tags beside it, and an empty line between sentences."""

import re
from collections.abc import Sequence
from pathlib import Path

from .place import Place, shown
from .tags import TAG, Sentence

Row = tuple[Place, list[str]]
DOCUMENT = "-DOCSTART-"


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
            blocks[-1].append((Place(path, number), cells))
        elif blocks[-1]:
            blocks.append([])
    return [rows for rows in blocks if rows]


def sentences(path: Path, lines: list[str], columns: Sequence[int] | None) -> list[Sentence]:
    """Tokens are the first cell, or the second where the first counts them (GermEval 2014, with its # comments).

    ``columns``: the cells that hold tags, counted from 0; by default all after the token.
    """
    blocks = read_rows(path, lines)
    token = int(_numbered(blocks))
    if token:
        blocks = [[row for row in rows if row[1][0] != "#"] for rows in blocks]
    blocks = [rows for rows in blocks if rows]
    if not blocks:
        raise Place(path, 1).fault("file must hold at least one sentence, got none")
    width = len(blocks[0][0][1])
    for place, cells in (row for rows in blocks for row in rows):
        if len(cells) != width:
            raise place.fault(f"line must have {width} columns like the first, got {len(cells)}: {shown(cells)}")
    chosen = _tag_columns(blocks, token, columns)
    return [
        Sentence(
            [cells[token] for _, cells in rows],
            [place for place, _ in rows],
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
    place, cells = blocks[0][0]
    if columns is not None:
        if not columns or not all(token < column < len(cells) for column in columns):
            raise place.fault(f"columns must be numbers from {token + 1} to {len(cells) - 1}, got {list(columns)}")
        return columns
    if len(cells) < token + 2:
        raise place.fault(f"line must have a token and at least one tag, got {shown(cells)}")
    for column in range(token + 1, len(cells)):
        values = {row[column] for rows in blocks for _, row in rows}
        odd = {value for value in values if not TAG.fullmatch(value)}
        for place, row in (row for rows in blocks for row in rows if odd):
            if row[column] in odd:
                raise place.fault(
                    f"column {column} must hold tags (O, B-label, I-label, ...), got {shown(row[column])}; "
                    "if it holds something else, name the columns of tags (columns, --column), counted from 0"
                )
    return range(token + 1, len(cells))
