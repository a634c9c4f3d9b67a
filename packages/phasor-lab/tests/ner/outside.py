"""Other libraries' readings of tags and their scores of predictions, for comparison; without them tests are skipped."""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from phasor_lab.ner.data import Entity


def seqeval_spans(tags: Sequence[str], scheme: str) -> list[tuple[int, int, str]]:
    """(first token, last token, label) by seqeval's strict reader."""
    module = pytest.importorskip("seqeval.scheme")
    entities = module.Entities([list(tags)], getattr(module, scheme)).entities[0]
    return [(e.start, e.end - 1, e.tag) for e in entities]


def seqeval_score(gold: list[list[Entity]], predicted: list[list[Entity]], *, length: int) -> dict[str, Any]:
    """seqeval's report of flat entities, a character a token."""
    metrics = pytest.importorskip("seqeval.metrics")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels that are never predicted have no precision
        tags = [[_tags(entities, length) for entities in texts] for texts in (gold, predicted)]
        return metrics.classification_report(*tags, output_dict=True)


def _tags(entities: list[Entity], length: int) -> list[str]:
    tags = ["O"] * length
    for e in entities:
        tags[e.start : e.end] = [f"B-{e.label}"] + [f"I-{e.label}"] * (e.end - e.start - 1)
    return tags


Counts = tuple[int, int, int]  # correct, predicted, gold


def nervaluate_strict(
    gold: list[list[Entity]], predicted: list[list[Entity]], labels: list[str]
) -> tuple[Counts, dict[str, Counts]]:
    """nervaluate's strict counts, overall and per label.

    Where entities overlap, its result depends on the order of the predictions: a wrong one uses up a true entity that
    it overlaps, and a later one that equals this entity counts as wrong, too. So it gets those that equal one first.
    """
    module = pytest.importorskip("nervaluate")
    predicted = [sorted(found, key=lambda e: e not in true) for true, found in zip(gold, predicted, strict=True)]
    true, found = (
        [[{"label": e.label, "start": e.start, "end": e.end - 1} for e in entities] for entities in texts]
        for texts in (gold, predicted)
    )
    results = module.Evaluator(true, found, tags=labels, loader="dict").evaluate()
    return _counts(results["overall"]["strict"]), {
        label: _counts(result["strict"]) for label, result in results["entities"].items()
    }


def _counts(result: Any) -> Counts:
    return result.correct, result.actual, result.possible
