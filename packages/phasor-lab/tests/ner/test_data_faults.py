"""A broken file gives one line: file, line, rule, value."""

import random
import re
from pathlib import Path

import pytest

from phasor_lab.ner.data import read

GOOD = '{"text": "Ada met Bob", "label": {"person": {"Ada": [[0, 2]]}}}'
ITEM = '{"text": "Ada met Bob", "spans": [%s]}'
TOKENS = '{"tokens": ["A"], "ner_tags": ["O"]}'
ENTITY = '{"start_idx": 0, "end_idx": 2, "type": "person"}'
DEEP = '{"text": ' + "[" * 100_000


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def columns(*rows: str) -> str:
    return lines(*(row.replace(" ", "\t") for row in rows))


FAULTS = {
    # JSON
    "bad json in line 17": (
        "cluener", lines(*[GOOD] * 16, GOOD[:-1], GOOD), 17, "line must be JSON, got an error at column 63: Expecting"),
    "garbage after the object": ("cluener", GOOD + " x", 1, "nothing must follow the JSON, got 'x'"),
    "an array for lines": ("cluener", lines("[", GOOD, "]"), 1, "line must be a JSON object, got an array; write one"),
    "an array in one line": ("spans", "[" + ITEM % "" + "]", 1, "line must be a JSON object, got an array; write one"),
    "lines for an array": ("cmeee", lines(GOOD, GOOD), 1, "file must be one JSON array of objects, got '{"),
    "a number for an object": ("cluener", lines(GOOD, "17"), 2, "item must be a JSON object, got 17"),
    "deep json": ("spans", lines(ITEM % "", DEEP), 2, "line must be JSON, got '"),
    "a key twice": (
        "spans", '{"text": "Ada", "spans": [], "spans": []}', 1, "line must be JSON, got \"the key 'spans' stands"),
    "a broken array": (
        "cmeee", lines('[{"text": "Ada", "entities": []},', '{"text": "Ada",', '"entities" []}', "]"), 3, "line must"),
    "an array without commas": (
        "cmeee", lines('[{"text": "Ada", "entities": []}', '{"text": "Ada", "entities": []}]'), 2, "array must go on"),
    "an array that does not end": ("cmeee", lines('[{"text": "Ada", "entities": []}'), 1, "array must go on with"),
    "an array and more": ("cmeee", lines("[", '{"text": "Ada", "entities": []}', "]", "1"), 4, "nothing must follow"),
    # files
    "an empty file": (None, "", 1, "file must hold at least one sentence, got an empty file"),
    "only a byte order mark": (None, b"\xef\xbb\xbf", 1, "file must hold at least one sentence, got an empty file"),
    "white space": ("conll", " \n\t\n\n", 1, "file must hold at least one sentence, got an empty file"),
    "an empty array": ("cmeee", "[]", 1, "file must hold at least one sentence, got none"),
    "only document marks": ("conll", "-DOCSTART- O\n", 1, "file must hold at least one sentence, got none"),
    "latin 1": ("conll", b"Ada\tO\nJ\xf6rg\tO\n", 2, "file must be UTF-8, got byte 0xf6 at offset 7"),
    "utf 16": (None, "Ada\tO\n".encode("utf-16"), 1, "file must be UTF-8, got byte 0xff at offset 0"),
    "no known format": (None, "Ada met Bob\n", 1, "format cannot be told from the content, got 'Ada met Bob'; name"),
    "no known keys": (None, '{"a": 1}\n', 1, "format cannot be told from the content"),
    # keys
    "no text": ("cluener", lines(GOOD, '{"label": {}}'), 2, "item must have the key 'text' (a string), got the keys"),
    "no label": ("cluener", lines(GOOD, '{"text": "Ada"}'), 2, "item must have the key 'label'"),
    "no entities": ("cmeee", '[\n{"text": "Ada"}]', 2, "item must have the key 'entities' (a list of objects, empty i"),
    "no spans": ("spans", '{"text": "Ada"}', 1, "item must have the key 'spans'"),
    "spans and entities": ("spans", '{"text": "Ada", "spans": [], "entities": []}', 1, "item must have one list of"),
    "no type": ("cmeee", '[{"text": "A", "entities": [{"start_idx": 0, "end_idx": 0}]}]', 1, "entity must have the ke"),
    "no end": ("spans", ITEM % '{"start": 0, "label": "a"}', 1, "entity must have the key 'end', got {'start': 0"),
    "no tokens": ("tokens", '{"ner_tags": []}', 1, "item must have the key 'tokens'"),
    "text that is a list": ("spans", '{"text": [], "spans": []}', 1, "text must be a string, got []"),
    "label that is a list": ("cluener", '{"text": "A", "label": []}', 1, "label must be an object"),
    "surfaces that are a list": ("cluener", '{"text": "A", "label": {"a": []}}', 1, "label 'a' must be an object of"),
    "pairs that are a pair": (
        "cluener", '{"text": "A", "label": {"a": {"A": [0, 0]}}}', 1, "surface 'A' must have pairs [start, end], got"),
    "no pairs": ("cluener", '{"text": "A", "label": {"a": {"A": []}}}', 1, "surface 'A' must have a list of"),
    "a span that is a list": ("spans", ITEM % "[0, 3]", 1, "spans must be a list of objects, got [0, 3] in it"),
    # sentences
    "an empty text": ("spans", '{"text": "", "spans": []}', 1, "text must not be empty or only white space, got ''"),
    "a blank text": ("cluener", lines(GOOD, '{"text": " \\n", "label": {}}'), 2, "text must not be empty or only"),
    "half a surrogate pair": ("spans", '{"text": "A\\ud83d", "spans": []}', 1, "text must be Unicode characters"),
    "no token": ("tokens", '{"tokens": [], "ner_tags": []}', 1, "tokens must not be empty"),
    "an empty token": ("tokens", '{"tokens": ["A", ""], "ner_tags": ["O", "O"]}', 1, "token must not be empty"),
    "an empty cell": ("conll", "Ada\tO\n\tO\n", 2, "token must not be empty or only white space, got ''"),
    "a token that is a number": ("tokens", '{"tokens": [1], "ner_tags": ["O"]}', 1, "token must be a string, got 1"),
    # spans
    "end before start": (
        "cluener", '{"text": "Ada met Bob", "label": {"p": {"Ada": [[2, 0]]}}}', 1,
        "end must not be before start, got 'p' from 2 to 0, end included"),
    "end at start": (
        "spans", lines(ITEM % "", ITEM % '{"start": 3, "end": 3, "label": "p"}'), 2,
        "end must be after start (end is not included), got 'p' from 3 to 3"),
    "end outside the text": (
        "spans", ITEM % '{"start": 8, "end": 12, "label": "p"}', 1,
        "entity must lie in the text, 0 to 11, got 'p' from 8 to 12"),
    "included end outside the text": (
        "cmeee", '[{"text": "Ada", "entities": [' + ENTITY.replace("2", "3") + "]}]", 1,
        "entity must lie in the text, 0 to 2, got 'person' from 0 to 3, end included"),
    "start before the text": (
        "spans", ITEM % '{"start": -1, "end": 2, "label": "p"}', 1, "entity must lie in the text, 0 to 11, got 'p'"),
    "a start that is a word": ("spans", ITEM % '{"start": "0", "end": 2, "label": "p"}', 1, "start must be an integer"),
    "an end that is true": ("spans", ITEM % '{"start": 0, "end": true, "label": "p"}', 1, "end must be an integer"),
    "another surface": (
        "cluener", '{"text": "Ada met Bob", "label": {"p": {"Bob": [[0, 2]]}}}', 1,
        "entity must read as the text does, got 'Bob' for 'p' from 0 to 2, end included, where the text has 'Ada'"),
    "a repetition": (
        "cluener", '{"text": "Ada met Bob", "label": {"p": {"Ada": [[0, 2], [0, 2]]}}}', 1,
        "entities must differ, got 'p' from 0 to 2, end included twice"),
    "a repetition in two columns": ("conll", columns("Ada O O", "Bob B-p B-p"), 1, "entities must differ, got 'p' fro"),
    "an empty label": ("spans", ITEM % '{"start": 0, "end": 2, "label": ""}', 1, "label must be a name, got ''"),
    "a label that is a list": ("spans", ITEM % '{"start": 0, "end": 2, "label": []}', 1, "label must be a name, got ["),
    "an unknown label": (
        "cluener", lines(GOOD, GOOD.replace("person", "persn")), 2,
        "label must be one of person, place, got 'persn'; correct it, or have it in the training data"),
    "an unknown label in a tag": ("conll", columns("A O", "", "B B-person", "C B-x"), 4, "label must be one of person"),
    # tags
    "IOB1": (
        "conll", columns("A B-person", "", "B I-person"), 3,
        "tags must be IOB2 or BIOES, where an entity begins with B- or S-, got 'I-person' after the beg"),
    "another label inside": ("conll", columns("A B-person", "B I-place"), 2, "tags must be IOB2 or BIOES, where an"),
    "BILOU": (
        "conll", columns("A B-person", "B L-person"), 2,
        "column 1 must hold tags (O, B-label, I-label, ...; IOB2 or BIOES), got 'L-person'"),
    "BIOES without an end": (
        "conll", columns("A S-person", "B B-person", "C O"), 3,
        "tags must be of one scheme; others end each entity (E-, S-), got 'person' without an end"),
    "BIOES that begins inside": ("conll", columns("A S-person", "B E-person"), 2, "tags must be IOB2 or BIOES, where"),
    "BIOES that changes label": (
        "conll", columns("A B-person", "B E-place"), 2, "tags must be IOB2 or BIOES, where an entity begins with B-"),
    "BIOES open at the end": (
        "conll", columns("A S-person", "B B-person", "", "C O"), 2, "tags must be of one scheme; others end each"),
    "no scheme in JSON": (
        "tokens", lines(*['{"tokens": ["A"], "ner_tags": ["' + p + '-person"]}' for p in "BI"]), 2, "tags must be"),
    "no tag": ("conll", columns("A O", "B PER"), 2, "column 1 must hold tags (O, B-label, I-label, ...; IOB2 or BIOES"),
    "no tag in JSON": ("tokens", '{"tokens": ["A"], "ner_tags": ["PER"]}', 1, "tag must be O or B-, I-, E-, S- and"),
    "a tag of no type": ("tokens", '{"tokens": ["A"], "ner_tags": [null]}', 1, "tag must be a name or a number, got N"),
    "a numbered tag": ("tokens", '{"tokens": ["A"], "ner_tags": [3]}', 1, "tag must be a name, got the number 3; name"),
    "too few tags": (
        "tokens", '{"tokens": ["A", "B"], "ner_tags": ["O"]}', 1, "ner_tags must have one tag a token, 2 here, got 1"),
    "nested tags in one line": (
        "tokens", lines(TOKENS[:-1] + ', "nested_ner_tags": ["O"]}', TOKENS),
        2, "item must have the key 'nested_ner_tags'"),
    # columns
    "a column too few": ("conll", columns("A O O", "B O"), 2, "line must have 3 columns like the first, got 2: ['B',"),
    "a column too many": ("conll", columns("A O", "", "B O O"), 3, "line must have 2 columns like the first, got 3"),
    "no column of tags": ("conll", columns("A", "B"), 1, "line must have a token and at least one tag, got ['A']"),
    "a column of something else": ("conll", columns("A NNP B-person"), 1, "column 1 must hold tags (O, B-label"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(tmp_path: Path, name: str) -> None:
    format, content, line, rule = FAULTS[name]
    path = tmp_path / "data.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    with pytest.raises(ValueError, match=re.escape(f"{path}:{line}: {rule}")) as error:
        read(path, format, labels=["person", "place"] if "unknown" in name else None)
    message = str(error.value)
    assert message.isprintable()  # so one line
    assert len(message) < 400 + len(str(path))


def test_a_number_that_no_name_belongs_to(tmp_path):
    path = tmp_path / "tokens.jsonl"
    path.write_text('{"tokens": ["A"], "ner_tags": [3]}\n')
    with pytest.raises(
        ValueError, match=r"tokens\.jsonl:1: tag must be a number from 0 to 2, an index of tag_names, got 3"
    ):
        read(path, tag_names=["O", "B-a", "I-a"])


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
    "cluener": lines(GOOD, GOOD),
    "cmeee": '[\n{"text": "Ada met Bob", "entities": [' + ENTITY + "]}\n]",
    "conll": columns("Ada B-a O", "met O O", "", "Bob B-a B-b"),
    "spans": lines(ITEM % '{"start": 0, "end": 3, "label": "p"}', ITEM % ""),
    "tokens": lines('{"tokens": ["Ada", "met"], "ner_tags": ["B-p", "O"]}'),
}


@pytest.mark.parametrize("format", VALID)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path, format):
    path = tmp_path / "data.txt"
    random.seed(0)
    refused = 0
    for _ in range(150):
        data = bytearray(VALID[format].encode())
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(data))
            piece = random.choice([b"", b'"', b"{", b"]", b"[", b",", b"9", b"\n", b"\t", b"-", b"\xff", b"null", b"O"])
            data[at : at + random.randint(0, 4)] = piece
        path.write_bytes(data)
        for name in (format, None):
            message = error_of(path, name)
            refused += message is not None
            assert message is None or (re.match(re.escape(str(path)) + r":\d+: ", message) and message.isprintable())
    assert refused > 40


def error_of(path: Path, format: str | None) -> str | None:
    try:
        read(path, format)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("depth", [*range(100, 1000, 20), *range(900, 1000, 5)])
def test_deep_values_are_refused_in_one_line(tmp_path, depth):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"text": ' + "[" * depth + "]" * depth + ', "spans": []}\n')
    with pytest.raises(ValueError, match=r"deep\.jsonl:1: "):
        read(path, "spans")
