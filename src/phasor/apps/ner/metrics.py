"""How well predicted entities agree with the true ones: precision, recall, F1 and confusion."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol


class Labelled(Protocol):
    """What has a character span and a label: an `Entity` or a `Prediction`."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def label(self) -> str: ...


@dataclass(frozen=True)
class Score:
    """Counts of entities, and what follows from them; a quotient by zero is 0.

    >>> score = Score(correct=1, predicted=2, gold=4)
    >>> score.precision, score.recall, round(score.f1, 3)
    (0.5, 0.25, 0.333)
    """

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """correct / predicted"""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """correct / gold"""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """2 correct / (predicted + gold), the harmonic mean of precision and recall"""
        return 2 * self.correct / (self.predicted + self.gold) if self.predicted + self.gold else 0.0


@dataclass(frozen=True)
class Scores:
    """``overall`` (micro average), per label (sorted), of nested entities alone, and the confusion of labels.

    ``confusion[true, predicted]`` counts pairs with the same span; ``(true, None)`` entities whose span was not
    predicted, ``(None, predicted)`` predictions whose span holds no entity.
    """

    overall: Score
    labels: dict[str, Score]
    nested: Score
    confusion: dict[tuple[str | None, str | None], int]


Key = tuple[int, int, int, str]  # text, start, end, label


def evaluate(gold: Sequence[Iterable[Labelled]], predicted: Sequence[Iterable[Labelled]]) -> Scores:
    """Compare the entities of each text by exact span and label, summed over all texts; repetitions count once.

    Nested entities contain another of their text or lie in one (the same span with another label is both). Their
    score counts the nested true entities, those of them that were predicted, and as wrong the predictions that nest
    in or around another prediction without being true.

    >>> from phasor.apps.ner.data import Entity
    >>> city, club = Entity(0, 7, "place"), Entity(0, 10, "club")
    >>> scores = evaluate([[city, club]], [[city, Entity(0, 10, "team")]])
    >>> scores.overall
    Score(correct=1, predicted=2, gold=2)
    >>> scores.confusion
    {('club', 'team'): 1, ('place', 'place'): 1}
    """
    if len(gold) != len(predicted):
        raise ValueError(
            f"predicted must have one list of entities a text, {len(gold)} as gold has, got {len(predicted)}"
        )
    true, found = _keys(gold), _keys(predicted)
    nested_true, nested_found = _nested(true), _nested(found)
    names = sorted({key[3] for key in true | found})
    return Scores(
        overall=Score(len(true & found), len(found), len(true)),
        labels={name: _score_of(name, true, found) for name in names},
        nested=Score(len(nested_true & found), len(nested_true & found) + len(nested_found - true), len(nested_true)),
        confusion=_confusion(true, found),
    )


def _keys(texts: Sequence[Iterable[Labelled]]) -> set[Key]:
    return {(i, e.start, e.end, e.label) for i, entities in enumerate(texts) for e in entities}


def _score_of(label: str, true: set[Key], found: set[Key]) -> Score:
    true, found = ({key for key in keys if key[3] == label} for keys in (true, found))
    return Score(len(true & found), len(found), len(true))


def _nested(keys: set[Key]) -> set[Key]:
    texts: dict[int, list[Key]] = {}
    for key in keys:
        texts.setdefault(key[0], []).append(key)
    nested = set()
    for text in texts.values():
        text.sort(key=lambda key: key[1:3])
        for i, a in enumerate(text):
            for j in range(i + 1, len(text)):
                b = text[j]
                if b[1] >= a[2]:  # begins where a ends, and so do all that follow
                    break
                if a[1] == b[1] or b[2] <= a[2]:
                    nested |= {a, b}
    return nested


def _confusion(true: set[Key], found: set[Key]) -> dict[tuple[str | None, str | None], int]:
    """Pairs of one span: equal labels first, then the others in alphabetical order; what is left has no partner."""
    counts = Counter[tuple[str | None, str | None]]((key[3], key[3]) for key in true & found)
    missed, spurious = _labels_by_span(true - found), _labels_by_span(found - true)
    for span in sorted(missed.keys() | spurious.keys()):
        counts.update(zip_longest(missed.get(span, ()), spurious.get(span, ())))
    return dict(sorted(counts.items(), key=lambda item: [label or "" for label in item[0]]))


def _labels_by_span(keys: set[Key]) -> dict[tuple[int, int, int], list[str]]:
    spans: dict[tuple[int, int, int], list[str]] = {}
    for text, start, end, label in sorted(keys):
        spans.setdefault((text, start, end), []).append(label)
    return spans
