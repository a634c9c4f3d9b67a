"""Scores as a page of text and as plain data: overall, by label, nested spans apart, and what is taken for what."""

from typing import Any

from .metrics import Score, Scores


def page(scores: Scores) -> str:
    """The page that `phasor ner evaluate` prints.

    >>> print(page(Scores(Score(1, 1, 2), {"name": Score(1, 1, 2)}, Score(0, 0, 0), {("name", "name"): 1})))
                P      R     F1   right   found    true
    all    1.0000 0.5000 0.6667       1       1       2
    name   1.0000 0.5000 0.6667       1       1       2
    nested 0.0000 0.0000 0.0000       0       0       0
    <BLANKLINE>
    rows: true label; columns: found label; missed: span not found; extra: found where there is no such span
           (1) missed
    name 1   1      .
    extra    .
    """
    rows = [("all", scores.overall), *scores.labels.items(), ("nested", scores.nested)]
    width = max(len(name) for name, _ in rows)
    head = f"{'':{width}} {'P':>6} {'R':>6} {'F1':>6} {'right':>7} {'found':>7} {'true':>7}"
    return "\n".join([head, *(_row(name, score, width) for name, score in rows), "", *_confusion(scores)])


def _row(name: str, score: Score, width: int) -> str:
    shares = f"{score.precision:6.4f} {score.recall:6.4f} {score.f1:6.4f}"
    return f"{name:{width}} {shares} {score.correct:>7} {score.predicted:>7} {score.gold:>7}"


def _confusion(scores: Scores) -> list[str]:
    labels = list(scores.labels)
    width = max([5, *(len(f"{label} {i}") for i, label in enumerate(labels, 1))])
    lines = ["rows: true label; columns: found label; missed: span not found; extra: found where there is no such span"]
    lines.append(" " * width + "".join(f"{f'({i})':>5}" for i in range(1, len(labels) + 1)) + " missed")
    for i, true in enumerate([*labels, None], 1):
        counts = [scores.confusion.get((true, found), 0) for found in labels]
        name = "extra" if true is None else f"{true:{width - len(str(i)) - 1}} {i}"
        missed = "" if true is None else f"{scores.confusion.get((true, None), 0) or '.':>7}"
        lines.append(f"{name:{width}}" + "".join(f"{count or '.':>5}" for count in counts) + missed)
    return lines


def to_dict(scores: Scores) -> dict[str, Any]:
    """The same as plain data for JSON; the confusion as ``[true, found, count]``, null where there is none."""
    return {
        "overall": _numbers(scores.overall),
        "labels": {label: _numbers(score) for label, score in scores.labels.items()},
        "nested": _numbers(scores.nested),
        "confusion": [[true, found, count] for (true, found), count in scores.confusion.items()],
    }


def _numbers(score: Score) -> dict[str, float]:
    return {
        "f1": score.f1,
        "precision": score.precision,
        "recall": score.recall,
        "correct": score.correct,
        "predicted": score.predicted,
        "gold": score.gold,
    }
