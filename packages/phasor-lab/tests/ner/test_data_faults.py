"""A broken file gives one line: file, line, rule, value."""

import random
import re
from pathlib import Path

import pytest

from phasor_lab.ner.data import read

ITEM = '{"text": "Ada met Bob", "spans": [%s]}'
GOOD = ITEM % '{"start": 0, "end": 3, "label": "person"}'
DEEP = '{"text": ' + "[" * 100_000


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def columns(*rows: str) -> str:
    return lines(*(row.replace(" ", "\t") for row in rows))


FAULTS = {
    # JSON
    "bad json in line 17": (lines(*[GOOD] * 16, GOOD[:-1], GOOD), 17, "line must be JSON, got an error at column 77"),
    "garbage after the object": (GOOD + " x", 1, "line must be JSON, got an error at column 79: Extra data"),
    "an array for lines": (lines("[", GOOD, "]"), 1, "line must be JSON, got an error"),
    "an array in one line": ("[" + ITEM % "" + "]", 1, "item must be a JSON object, got [{'text'"),
    "a number for an object": (lines(GOOD, "17"), 2, "item must be a JSON object, got 17"),
    "deep json": (lines(ITEM % "", DEEP), 2, "line must be JSON, got '"),
    "a key twice": ('{"text": "Ada", "spans": [], "spans": []}', 1, "line must be JSON, got \"the key 'spans' stands"),
    # files
    "an empty file": ("", 1, "file must hold at least one sentence, got an empty file"),
    "only a byte order mark": (b"\xef\xbb\xbf", 1, "file must hold at least one sentence, got an empty file"),
    "white space": (" \n\t\n\n", 1, "file must hold at least one sentence, got an empty file"),
    "only document marks": ("-DOCSTART- O\n", 1, "file must hold at least one sentence, got none"),
    "latin 1": (b"Ada\tO\nJ\xf6rg\tO\n", 2, "file must be UTF-8, got byte 0xf6 at offset 7"),
    "utf 16": ("Ada\tO\n".encode("utf-16"), 1, "file must be UTF-8, got byte 0xff at offset 0"),
    "no known format": ("Ada met Bob\n", 1, "column 1 must hold tags (O, B-label, I-label; IOB2), got 'met'"),
    # keys
    "no text": (lines(GOOD, '{"spans": []}'), 2, "item must have the key 'text' (a string), got the keys"),
    "no spans": ('{"text": "Ada"}', 1, "item must have the key 'spans' (a list of objects, empty i"),
    "no end": (ITEM % '{"start": 0, "label": "a"}', 1, "entity must have the key 'end', got {'start': 0"),
    "text that is a list": ('{"text": [], "spans": []}', 1, "text must be a string, got []"),
    "spans that are an object": ('{"text": "A", "spans": {}}', 1, "spans must be a list of objects"),
    "a span that is a list": (ITEM % "[0, 3]", 1, "spans must be a list of objects, got [0, 3] in it"),
    # sentences
    "an empty text": ('{"text": "", "spans": []}', 1, "text must not be empty or only white space, got ''"),
    "a blank text": (lines(GOOD, '{"text": " \\n", "spans": []}'), 2, "text must not be empty or only"),
    "half a surrogate pair": ('{"text": "A\\ud83d", "spans": []}', 1, "text must be Unicode characters"),
    "a space that parts no cells": ("a B-x\n\u3000 O\n", 2, "token must not be empty or only white space, got '\\u"),
    "an empty cell": ("Ada\tO\n\tO\n", 2, "token must not be empty or only white space, got ''"),
    # spans
    "end at start": (
        lines(ITEM % "", ITEM % '{"start": 3, "end": 3, "label": "p"}'), 2,
        "end must be after start (end is not included), got 'p' from 3 to 3"),
    "end outside the text": (
        ITEM % '{"start": 8, "end": 12, "label": "p"}', 1, "entity must lie in the text, 0 to 11, got 'p'"),
    "start before the text": (
        ITEM % '{"start": -1, "end": 2, "label": "p"}', 1, "entity must lie in the text, 0 to 11, got 'p'"),
    "a start that is a word": (ITEM % '{"start": "0", "end": 2, "label": "p"}', 1, "start must be an integer"),
    "an end that is true": (ITEM % '{"start": 0, "end": true, "label": "p"}', 1, "end must be an integer"),
    "another surface": (
        ITEM % '{"start": 0, "end": 3, "label": "p", "text": "Bob"}', 1,
        "entity must read as the text does, got 'Bob' for 'p' from 0 to 3, where the text has 'Ada'"),
    "a repetition in two columns": (columns("Ada O O", "Bob B-p B-p"), 1, "entities must differ, got 'p' fro"),
    "an empty label": (ITEM % '{"start": 0, "end": 2, "label": ""}', 1, "label must be a name, got ''"),
    "a label that is a list": (ITEM % '{"start": 0, "end": 2, "label": []}', 1, "label must be a name, got ["),
    "an unknown label": (
        lines(GOOD, GOOD.replace("person", "persn")), 2,
        "label must be one of person, place, got 'persn'; correct it, or have it in the training data"),
    "an unknown label in a tag": (columns("A O", "", "B B-person", "C B-x"), 4, "label must be one of person"),
    # tags
    "IOB1": (
        columns("A B-person", "", "B I-person"), 3,
        "tags must be IOB2, where an entity begins with B-, got 'I-person' after the beg"),
    "another label inside": (columns("A B-person", "B I-place"), 2, "tags must be IOB2, where an"),
    "an entity after none": (columns("A O", "B I-place"), 2, "tags must be IOB2, where an entity begins with B-, got"),
    "BIOES": (columns("A B-person", "B E-person"), 2, "column 1 must hold tags (O, B-label, I-label; IOB2), got "),
    "no tag": (columns("A O", "B PER"), 2, "column 1 must hold tags (O, B-label, I-label; IOB2), got 'PER'"),
    # columns
    "a column too few": (columns("A O O", "B O"), 2, "line must have 3 columns like the first, got 2: ['B',"),
    "a column too many": (columns("A O", "", "B O O"), 3, "line must have 2 columns like the first, got 3"),
    "no column of tags": (columns("A", "B"), 1, "line must have a token and at least one tag, got ['A']"),
    "a column of something else": (columns("A NNP B-person"), 1, "column 1 must hold tags (O, B-label"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(tmp_path: Path, name: str) -> None:
    content, line, rule = FAULTS[name]
    path = tmp_path / "data.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    with pytest.raises(ValueError, match=re.escape(f"{path}:{line}: {rule}")) as error:
        read(path, labels=["person", "place"] if "unknown" in name else None)
    message = str(error.value)
    assert message.isprintable()  # so one line
    assert len(message) < 400 + len(str(path))


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_no_file(tmp_path, name):
    with pytest.raises(ValueError, match="path must be an existing file, got"):
        read(tmp_path / name)


def test_values_from_the_file_cannot_break_the_line(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text('{"text": "Ada", "spans": [{"start": 0, "end": 9, "label": "a\\n\\u001b[31mb"}]}\n')
    with pytest.raises(ValueError, match=r"from 0 to 9") as error:
        read(path)
    assert str(error.value).isprintable()


VALID = {
    "columns": columns("Ada B-a O", "met O O", "", "Bob B-a B-b"),
    "JSON lines": lines(ITEM % '{"start": 0, "end": 3, "label": "p"}', ITEM % ""),
}


@pytest.mark.parametrize("form", VALID)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path, form):
    path = tmp_path / "data.txt"
    random.seed(0)
    refused = 0
    for _ in range(150):
        data = bytearray(VALID[form].encode())
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(data))
            piece = random.choice([b"", b'"', b"{", b"]", b"[", b",", b"9", b"\n", b"\t", b"-", b"\xff", b"null", b"O"])
            data[at : at + random.randint(0, 4)] = piece
        path.write_bytes(data)
        message = error_of(path)
        refused += message is not None
        assert message is None or (re.match(re.escape(str(path)) + r":\d+: ", message) and message.isprintable())
    assert refused > 40


def error_of(path: Path) -> str | None:
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return None
