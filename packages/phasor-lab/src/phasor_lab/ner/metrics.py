"""How well predicted entities agree with the true ones: precision, recall and F1, as numbers and as a page.

Not those of nervaluate or seqeval, with which the tests compare: neither counts spans that nest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .data.windows import Prediction, overlapping

NESTED = (
    "nested: spans inside or around others; found: the nested true ones, and wrong ones nested in or around a found one"
)


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
    """``overall`` (micro average), per label (sorted), and of nested entities alone."""

    overall: Score
    labels: dict[str, Score]
    nested: Score


def best_threshold(gold: Sequence[Iterable[Labelled]], predicted: Sequence[Iterable[Prediction]]) -> float:
    """The probability above which predictions are kept for the largest F1, midway between two of them.

    ``predicted`` are those of a low threshold: what is kept of them at a higher one is what a search at that one finds,
    because the better prediction is always served first. The highest of several that are equally good; 0.5 if nothing
    is right at any.

    >>> from phasor_lab.ner.data import Entity
    >>> right, wrong = Prediction(0, 3, "name", 0.4), Prediction(4, 7, "name", 0.2)
    >>> round(best_threshold([[Entity(0, 3, "name")]], [[right, wrong]]), 3)
    0.3
    """
    true = _keys(gold)
    # of equal scores the wrong ones come first: so the best cut never lies between them
    ranked = sorted((-p.score, (i, p.start, p.end, p.label) in true) for i, of in enumerate(predicted) for p in of)
    best, threshold, correct = 0.0, 0.5, 0
    for count, (score, right) in enumerate(ranked, 1):
        correct += right
        following = -ranked[count][0] if count < len(ranked) else 0.0
        if (f1 := 2 * correct / (count + len(true))) > best:
            best, threshold = f1, (following - score) / 2
    return threshold


Key = tuple[int, int, int, str]  # text, start, end, label


def evaluate(gold: Sequence[Iterable[Labelled]], predicted: Sequence[Iterable[Labelled]]) -> Scores:
    """Compare the entities of each text by exact span and label, summed over all texts; repetitions count once.

    Nested entities contain another of their text or lie in one (the same span with another label is both). Their
    score counts the nested true entities, those of them that were predicted, and as wrong the predictions that nest
    in or around another prediction without being true.

    >>> from phasor_lab.ner.data import Entity
    >>> city, club = Entity(0, 7, "place"), Entity(0, 10, "club")
    >>> scores = evaluate([[city, club]], [[city, Entity(0, 10, "team")]])
    >>> scores.overall
    Score(correct=1, predicted=2, gold=2)
    """
    if len(gold) != len(predicted):
        raise ValueError(
            f"predicted must have one list of entities a text, {len(gold)} as gold has, got {len(predicted)}"
        )
    true, proposed = _keys(gold), _keys(predicted)
    nested_true, nested_proposed = _nested(true), _nested(proposed)
    names = sorted({key[3] for key in true | proposed})
    return Scores(
        overall=Score(len(true & proposed), len(proposed), len(true)),
        labels={name: _score_of(name, true, proposed) for name in names},
        nested=Score(
            len(nested_true & proposed), len(nested_true & proposed) + len(nested_proposed - true), len(nested_true)
        ),
    )


def _keys(texts: Sequence[Iterable[Labelled]]) -> set[Key]:
    return {(i, e.start, e.end, e.label) for i, entities in enumerate(texts) for e in entities}


def _score_of(label: str, true: set[Key], proposed: set[Key]) -> Score:
    true, proposed = ({key for key in keys if key[3] == label} for keys in (true, proposed))
    return Score(len(true & proposed), len(proposed), len(true))


def _nested(keys: set[Key]) -> set[Key]:
    texts: dict[int, list[Key]] = {}
    for key in sorted(keys):
        texts.setdefault(key[0], []).append(key)
    nested = set()
    for text in texts.values():
        spans = [key[1:3] for key in text]
        for i, j in overlapping(spans):
            if spans[i][0] == spans[j][0] or spans[j][1] <= spans[i][1]:
                nested |= {text[i], text[j]}
    return nested


def page(scores: Scores) -> str:
    """The page that `phasor ner evaluate` prints.

    >>> print(page(Scores(Score(1, 1, 2), {"name": Score(1, 1, 2)}, Score(0, 0, 0))))
                P      R     F1   right   found    true
    all    1.0000 0.5000 0.6667       1       1       2
    name   1.0000 0.5000 0.6667       1       1       2
    nested 0.0000 0.0000 0.0000       0       0       0
    nested: spans inside or around others; found: the nested true ones, and wrong ones nested in or around a found one
    """
    rows = [("all", scores.overall), *scores.labels.items(), ("nested", scores.nested)]
    width = max(len(name) for name, _ in rows)
    head = f"{'':{width}} {'P':>6} {'R':>6} {'F1':>6} {'right':>7} {'found':>7} {'true':>7}"
    return "\n".join([head, *(_row(name, score, width) for name, score in rows), NESTED])


def _row(name: str, score: Score, width: int) -> str:
    shares = f"{score.precision:6.4f} {score.recall:6.4f} {score.f1:6.4f}"
    return f"{name:{width}} {shares} {score.correct:>7} {score.predicted:>7} {score.gold:>7}"


def to_dict(scores: Scores) -> dict[str, Any]:
    """The same as plain data for JSON."""
    return {
        "overall": _numbers(scores.overall),
        "labels": {label: _numbers(score) for label, score in scores.labels.items()},
        "nested": _numbers(scores.nested),
    }


def _numbers(score: Score) -> dict[str, float]:
    return {"f1": score.f1, "precision": score.precision, "recall": score.recall, **vars(score)}
