"""Every format is read into the same examples; real data sets have the counts that were published or measured."""

import json
from pathlib import Path

import pytest

from phasor_lab.ner.data import Entity, Example, labels_of, read

ADA = json.dumps(
    {"text": "Ada met Bob", "spans": [dict(start=0, end=3, label="person"), dict(start=8, end=11, label="person")]}
)
ADA += "\n"
PEOPLE = (Entity(0, 3, "person"), Entity(8, 11, "person"))


def file(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "data.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "Ada\tB-person\nmet\tO\nBob\tB-person\n",
        "Ada B-person\nmet O\nBob B-person",
        "Ada\tB-person\r\nmet\tO\r\nBob\tB-person\r\n\r\n",
        "#\thttp://a.example\n1\tAda\tB-person\tO\n2\tmet\tO\tO\n3\tBob\tO\tB-person\n",
        '{"text": "Ada met Bob", "spans": [{"start": 0, "end": 3, "label": "person"}, '
        '{"start": 8, "end": 11, "label": "person", "text": "Bob", "score": 0.9}]}\n',
        '{"text": "Ada met Bob", "spans": [{"start": 8, "end": 11, "label": "person"}, '
        '{"start": 0, "end": 3, "label": "person"}]}\n\n',
    ],
)
def test_one_sentence_in_every_form(tmp_path, content):
    (example,) = read(file(tmp_path, content))
    assert (example.text, example.entities) == ("Ada met Bob", PEOPLE)


# What a file holds, and the texts that are read.
TEXTS = {
    "a first token that looks like JSON, where a tag follows": ("[ O\nAda B-person\n", ["[ Ada"]),
    "the same, an object": ("{ O\nAda B-person\n", ["{ Ada"]),
    "the same, with a key": ('{"text": O\nAda B-person\n', ['{"text": Ada']),
    "a byte order mark is in no text": (b"\xef\xbb\xbf" + ADA.encode(), ["Ada met Bob"]),
    "a document mark parts sentences": ("-DOCSTART- O\nAda B-p\nmet O\n-DOCSTART- O\nBob B-p\n", ["Ada met", "Bob"]),
    "only newlines end a line": ("a\u2028b\tO\nc\tO\n", ["a\u2028b c"]),
    "nor of JSON": ('{"text": "one\u2028two\x85three", "spans": []}\n', ["one\u2028two\x85three"]),
    "only spaces and tabs part cells": ("a\u00a0b B-x\nc\u3000 O\n", ["a\u00a0b c\u3000"]),
    "a comment sign where tokens are not counted": ("#\tB-x\nA\tO\n", ["# A"]),
}


@pytest.mark.parametrize("what", TEXTS)
def test_texts(tmp_path, what):
    content, texts = TEXTS[what]
    assert [example.text for example in read(file(tmp_path, content))] == texts


def test_the_source_is_file_and_line(tmp_path):
    path = file(tmp_path, "Ada\tB-person\n\n\n\t\nmet\tO\n")
    assert [example.source for example in read(path)] == [f"{path}:1", f"{path}:5"]
    path = file(tmp_path, ADA + "\n" + ADA)
    assert [example.source for example in read(path)] == [f"{path}:1", f"{path}:3"]


def test_documents_and_other_columns_of_conll_2003(tmp_path):
    path = file(tmp_path, "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n")
    examples = read(path, columns=[3])
    assert [example.text for example in examples] == ["EU rejects", "Peter"]
    assert labels_of(examples) == ("ORG", "PER")
    with pytest.raises(ValueError, match=r"columns must be numbers from 1 to 3, got \[4\]"):
        read(path, columns=[4])
    with pytest.raises(ValueError, match=r"columns must be numbers from 1 to 3, got \[\]"):
        read(path, columns=[])


def nested_pairs(examples: list[Example]) -> int:
    """Pairs of entities of one text of which one lies in the other."""
    return sum(
        a.start <= b.start and b.end <= a.end
        for example in examples
        for a in example.entities
        for b in example.entities
        if (a.start, -a.end, a.label) < (b.start, -b.end, b.label)
    )


# Sentences, entities and nested pairs of the sets: counted by a script that shares no code with phasor.
COUNTS = [
    ("wnut17/train.conll", 3394, 1975, 6, 0),
    ("wnut17/dev.conll", 1009, 836, 6, 0),
    ("wnut17/test.conll", 1287, 1079, 6, 0),
    ("germeval2014/dev.iob2", 2200, 2886, 12, None),
    pytest.param("germeval2014/test.iob2", 5100, 6693, 12, None, marks=pytest.mark.slow),
    pytest.param("germeval2014/train.iob2", 24000, 31545, 12, 2467, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name, sentences, entities, types, nested", COUNTS)
def test_real_data_sets_have_their_counts(shared_data, name, sentences, entities, types, nested):
    examples = read(shared_data / "ner" / name)
    assert len(examples) == sentences
    assert sum(len(example.entities) for example in examples) == entities
    assert len(labels_of(examples)) == types
    assert nested is None or nested_pairs(examples) == nested
