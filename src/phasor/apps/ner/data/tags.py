"""Sentences of tagged tokens, with one or more columns of tags, as texts with spans."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from .check import Span, check_label, check_text, checked
from .example import Example
from .place import Place, shown

TAG = re.compile(r"O|([BIESLUM])-(\S.*)")
BEGIN_INSIDE = frozenset("BI")
CLOSED = (frozenset("BIES"), frozenset("BILU"), frozenset("BMES"))  # the schemes that mark the last token, too


@dataclass(frozen=True)
class Sentence:
    """Tokens, the place of each, and one list of tags per column."""

    tokens: Sequence[str]
    places: Sequence[Place]
    columns: Sequence[Sequence[str]]


def examples_of(sentences: Sequence[Sentence], labels: Collection[str] | None) -> list[Example]:
    """The tokens joined by one space; the entities of all columns.

    The scheme is found for each column of the file: BIO (each entity begins with B-), IOB1 (B- only parts neighbours
    of one label), BIOES, BILOU or BMES. Raises ``ValueError`` where the tags of a column are of no one scheme.
    """
    width = len(sentences[0].columns) if sentences else 0
    found = [list(_column(sentences, column)) for column in range(width)]
    return [_example(sentence, [runs[i] for runs in found], labels) for i, sentence in enumerate(sentences)]


Run = tuple[int, int, str]  # first token, last token, label


def _example(sentence: Sentence, columns: list[list[Run]], labels: Collection[str] | None) -> Example:
    ends, at = [], -1
    for token, place in zip(sentence.tokens, sentence.places, strict=True):
        check_text(place, token, "token")
        at += 1 + len(token)
        ends.append(at)
    spans = []
    for first, last, label in (run for runs in columns for run in runs):
        check_label(sentence.places[first], label, labels)
        spans.append(Span(ends[first] - len(sentence.tokens[first]), ends[last], label))
    return checked(sentence.places[0], " ".join(sentence.tokens), spans, labels)


def _column(sentences: Sequence[Sentence], column: int) -> Iterator[list[Run]]:
    known: dict[str, tuple[str, str]] = {}
    pairs = [
        [
            known.get(tag) or known.setdefault(tag, _split(p, tag))
            for p, tag in zip(s.places, s.columns[column], strict=True)
        ]
        for s in sentences
    ]
    closed = _is_closed(sentences, pairs)
    if not closed:
        _check_open(sentences, pairs)
    for sentence, tags in zip(sentences, pairs, strict=True):
        yield _closed_runs(sentence.places, tags) if closed else _open_runs(tags)


def _split(place: Place, tag: str) -> tuple[str, str]:
    match = TAG.fullmatch(tag)
    if not match:
        raise place.fault(f"tag must be O or B-, I-, E-, S-, L-, U-, M- and a label, got {shown(tag)}")
    return (match[1] or "O", match[2] or "")


def _written(tag: tuple[str, str]) -> str:
    return shown("-".join(part for part in tag if part))


def _is_closed(sentences: Sequence[Sentence], pairs: list[list[tuple[str, str]]]) -> bool:
    seen: dict[str, Place] = {}
    for sentence, tags in zip(sentences, pairs, strict=True):
        for place, (prefix, label) in zip(sentence.places, tags, strict=True):
            if prefix == "O":
                continue
            seen.setdefault(prefix, place)
            if not any(set(seen) <= scheme for scheme in (BEGIN_INSIDE, *CLOSED)):
                before = ", ".join(f"{p}- (line {at.line})" for p, at in seen.items() if p != prefix)
                raise place.fault(f"tags must be of one scheme, got {shown(f'{prefix}-{label}')} after {before}")
    return not set(seen) <= BEGIN_INSIDE


def _begins(tags: list[tuple[str, str]], i: int) -> bool:
    """Whether an entity begins at a B- or I- tag without being parted from one of its label: true in BIO and IOB1."""
    return i == 0 or tags[i - 1][0] == "O" or tags[i - 1][1] != tags[i][1]


def _check_open(sentences: Sequence[Sentence], pairs: list[list[tuple[str, str]]]) -> None:
    """BIO begins all entities with B-, IOB1 begins them with I- unless a neighbour has their label."""
    first: dict[str, tuple[Place, str]] = {}
    for sentence, tags in zip(sentences, pairs, strict=True):
        for i, (prefix, label) in enumerate(tags):
            if prefix != "O" and _begins(tags, i):
                place = sentence.places[i]
                first.setdefault(prefix, (place, f"{prefix}-{label}"))
                if len(first) == 2:
                    (before, other), (_, tag) = first.values()
                    raise place.fault(
                        f"tags must be of one scheme, got an entity that begins with {shown(tag)} "
                        f"after one that begins with {shown(other)} (line {before.line}); BIO begins all with B-"
                    )


def _open_runs(tags: list[tuple[str, str]]) -> list[Run]:
    runs: list[Run] = []
    for i, (prefix, label) in enumerate(tags):
        if prefix == "B" or (prefix == "I" and _begins(tags, i)):
            runs.append((i, i, label))
        elif prefix == "I":
            runs[-1] = (runs[-1][0], i, label)
    return runs


def _closed_runs(places: Sequence[Place], tags: list[tuple[str, str]]) -> list[Run]:
    runs: list[Run] = []
    first, inside = 0, ""  # where the open entity began, and its label
    for i, (prefix, label) in enumerate(tags):
        goes_on = prefix in "IMEL"
        if goes_on != bool(inside) or (goes_on and label != inside):
            before = _written(tags[i - 1]) if i else "the beginning"
            raise places[i].fault(
                f"tags must be of one scheme that ends each entity, got {_written(tags[i])} after {before}"
            )
        if prefix in "BSU":
            first = i
        if prefix in "ESLU":
            runs.append((first, i, label))
        inside = label if prefix in "BIM" else ""
    if inside:
        raise places[-1].fault(
            f"tags must be of one scheme; others end each entity (E-, S-, L-, U-), got {shown(inside)} without an end"
        )
    return runs
