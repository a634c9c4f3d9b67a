"""Tags become the spans that conlleval, as seqeval repeats it, sees in them."""

import random

import pytest

from phasor_lab.ner.data import read

from .outside import seqeval_spans


def spans(tmp_path, tags: list[str]) -> list[tuple[int, int, str]]:
    """(first token, last token, label): tokens are one character each, so token i is at character 2 i."""
    path = tmp_path / "tags.conll"
    path.write_text("".join(f"x\t{tag}\n" for tag in tags))
    (example,) = read(path)
    return [(e.start // 2, (e.end - 1) // 2, e.label) for e in example.entities]


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("B-a I-a B-a O B-b", [(0, 1, "a"), (2, 2, "a"), (4, 4, "b")]),
        ("B-a-b I-a-b O", [(0, 1, "a-b")]),
        ("O O", []),
    ],
)
def test_schemes(tmp_path, tags, expected):
    assert spans(tmp_path, tags.split()) == expected


def test_random_spans_read_as_seqeval_reads_them(tmp_path):
    random.seed(0)
    for _ in range(30):
        tags = tagged(40)
        assert spans(tmp_path, tags) == seqeval_spans(tags, "IOB2")


def tagged(length: int) -> list[str]:
    tags: list[str] = []
    while len(tags) < length:
        size, label = random.randint(1, 4), random.choice("ab")
        inside = [f"B-{label}", *[f"I-{label}"] * (size - 1)]
        tags += ["O"] if random.random() < 0.4 else inside
    return tags
