"""Measures, against counts made by hand and against seqeval and nervaluate."""

import random
from itertools import pairwise

import pytest

from phasor.encodings.heads import Span
from phasor_lab.ner import make_tokenizer
from phasor_lab.ner.data import Entity, Example, Prediction, align, merge, usual_mode
from phasor_lab.ner.metrics import Score, best_threshold, evaluate
from steps import counted_steps

from .outside import nervaluate_strict, seqeval_score

ORG, PER, LOC = "org", "per", "loc"


def test_by_hand():
    gold = [[Entity(0, 3, PER), Entity(8, 11, PER)], [Entity(0, 5, LOC)], []]
    predicted = [[Entity(0, 3, PER), Entity(8, 12, PER)], [Entity(0, 5, ORG)], [Entity(2, 3, PER)]]
    scores = evaluate(gold, predicted)
    assert scores.overall == Score(correct=1, predicted=4, gold=3)
    assert (scores.overall.precision, scores.overall.recall) == (1 / 4, 1 / 3)
    assert scores.overall.f1 == pytest.approx(2 / 7, rel=1e-15)  # 2 / (4 + 3)
    assert Score(correct=1, predicted=2, gold=2).f1 == 0.5
    assert scores.labels == {LOC: Score(0, 0, 1), ORG: Score(0, 1, 0), PER: Score(1, 3, 2)}


def test_repetitions_and_orders_do_not_matter():
    gold = [[Entity(0, 3, PER), Entity(4, 5, LOC)]]
    predicted = [[Prediction(4, 5, LOC, 0.6), Prediction(0, 3, PER, 0.9), Prediction(0, 3, PER, 0.8)]]
    assert evaluate(gold, predicted).overall == Score(2, 2, 2)


def test_nothing_is_zero():
    scores = evaluate([[], []], [[], []])
    assert scores.overall == scores.nested == Score(0, 0, 0)
    assert (scores.overall.precision, scores.overall.recall, scores.overall.f1) == (0.0, 0.0, 0.0)
    assert scores.labels == {}
    assert evaluate([[Entity(0, 1, PER)]], [[]]).overall.f1 == evaluate([[]], [[Entity(0, 1, PER)]]).overall.f1 == 0.0


def test_nested_entities_apart():
    outer, inner, alone, cross = Entity(0, 10, ORG), Entity(0, 4, LOC), Entity(20, 25, PER), Entity(22, 27, PER)
    gold = [[outer, inner, alone, cross]]  # crossing entities are not nested
    assert evaluate(gold, gold).nested == Score(2, 2, 2)
    assert evaluate(gold, [[inner]]).nested == Score(1, 1, 2)  # found, although it lies in nothing predicted
    wrong = Entity(1, 3, PER)
    assert evaluate(gold, [[inner, wrong]]).nested == Score(1, 2, 2)  # wrong, and it lies in a prediction
    assert evaluate(gold, [[alone, Entity(21, 22, PER)]]).nested == Score(0, 1, 2)  # alone is true: not held against it
    assert evaluate(gold, [[Entity(30, 31, PER)]]).nested == Score(0, 0, 2)
    assert evaluate([[Entity(0, 4, ORG), Entity(0, 4, LOC)]], [[]]).nested == Score(0, 0, 2)  # one span, two labels
    assert evaluate([[outer], [inner]], [[outer], [inner]]).nested == Score(0, 0, 0)  # in different texts


def test_lists_of_two_lengths():
    with pytest.raises(ValueError, match="predicted must have one list of entities a text, 1 as gold has, got 0"):
        evaluate([[]], [])


def random_texts(texts: int, *, nested: bool) -> list[list[Entity]]:
    """Entities on 30 characters; without ``nested`` no two overlap."""
    lists = []
    for _ in range(texts):
        edges = sorted(random.sample(range(31), 8))
        pairs = list(pairwise(edges))
        chosen = [Entity(*pair, random.choice([ORG, PER, LOC])) for pair in pairs if random.random() < 0.6]
        if nested:
            chosen += [Entity(edges[0], edges[4], ORG), Entity(edges[2], edges[3], PER)]
        lists.append(sorted(set(chosen)))
    return lists


def changed(gold: list[list[Entity]]) -> list[list[Entity]]:
    """Predictions: some missed, some of another label, some with another end (still flat if gold was)."""
    random.seed(1)
    predicted = []
    for entities in gold:
        kept = [e for e in entities if random.random() < 0.8]
        kept = [Entity(e.start, e.end, random.choice([e.label] * 3 + [PER])) for e in kept]
        kept = [Entity(e.start, max(e.start + 1, e.end - (random.random() < 0.2)), e.label) for e in kept]
        predicted.append(sorted(set(kept)))
    return predicted


def test_flat_entities_score_as_in_seqeval():
    gold = random_texts(200, nested=False)
    predicted = changed(gold)
    scores = evaluate(gold, predicted)
    expected = seqeval_score(gold, predicted, length=30)
    assert 0.3 < scores.overall.f1 < 0.9
    for name, score in {"micro avg": scores.overall, **scores.labels}.items():
        found = (score.precision, score.recall, score.f1, score.gold)
        assert found == pytest.approx(
            [expected[name][k] for k in ("precision", "recall", "f1-score", "support")], rel=1e-12
        )


@pytest.mark.parametrize("nested", [False, True])
def test_entities_score_as_in_nervaluate_strict(nested):
    gold = random_texts(200, nested=nested)
    predicted = changed(gold)
    scores = evaluate(gold, predicted)
    overall, labels = nervaluate_strict(gold, predicted, [LOC, ORG, PER])
    assert (scores.overall.correct, scores.overall.predicted, scores.overall.gold) == overall
    assert {name: (s.correct, s.predicted, s.gold) for name, s in scores.labels.items()} == labels


def test_work_grows_with_the_entities_of_a_text_not_with_their_pairs():
    tokenizer = make_tokenizer("characters", ["anna "] * 2)

    def work(count):
        entities = [Entity(5 * i, 5 * i + 4, PER) for i in range(count)]
        text = " ".join(["anna"] * count)
        with counted_steps() as scoring:
            assert evaluate([entities], [entities]).nested == Score(0, 0, 0)
        with counted_steps() as crossing:
            assert usual_mode([Example(text, tuple(entities), "f:1")]) == "flat"
        with counted_steps() as aligning:
            windows, _ = align([Example(text, (), "f:1")], tokenizer, [PER], max_length=20, stride=5)
        found = [[Span(0, first, first, 0.9) for first in range(20)] for _ in windows]
        with counted_steps() as merging:
            assert len(merge(windows, found, [PER], examples=1)[0]) == len(text)
        return {"scoring": scoring, "crossing": crossing, "aligning": aligning, "merging": merging}

    few, many = work(500), work(2000)
    assert {name: many[name].count / few[name].count < 6 for name in many} == dict.fromkeys(many, True), (few, many)


def test_the_best_threshold_is_that_of_a_search_over_all():
    """Against every threshold between two scores, tried one by one."""
    gold = [[Entity(0, 3, "x"), Entity(4, 7, "x")], [Entity(0, 3, "x")]]
    scores = (0.9, 0.5, 0.5, 0.2, 0.1)
    spans = ((0, 3), (4, 7), (1, 2), (0, 3), (8, 9))
    texts = (0, 0, 0, 1, 1)
    predictions = [
        [Prediction(*span, "x", score) for span, score, t in zip(spans, scores, texts, strict=True) if t == text]
        for text in (0, 1)
    ]

    def f1(threshold):
        return evaluate(gold, [[p for p in of if p.score > threshold] for of in predictions]).overall.f1

    best = best_threshold(gold, predictions)
    assert f1(best) == max(f1((a + b) / 2) for a, b in pairwise([1.0, *scores, 0.0]))
    assert best == pytest.approx(0.15)
    assert best_threshold(gold, [[], []]) == 0.5


def test_a_threshold_never_parts_equal_scores_and_is_the_highest_of_equals():
    gold = [[Entity(0, 3, "x")]]
    tied = [[Prediction(0, 3, "x", 0.5), Prediction(4, 7, "x", 0.5), Prediction(8, 9, "x", 0.3)]]
    assert best_threshold(gold, tied) == pytest.approx(0.4)  # 2/3 with both; a cut between them would be 1, and no cut
    two = [[Entity(0, 3, "x"), Entity(4, 7, "x"), Entity(8, 9, "x")]]
    # kept one: 2/4; two: 2/5; three: 2/6; four, with the second right one: 4/7
    scores = (((0, 3), 0.9), ((1, 2), 0.8), ((2, 3), 0.7), ((4, 7), 0.6), ((5, 6), 0.5))
    assert best_threshold(two, [[Prediction(*span, "x", score) for span, score in scores]]) == pytest.approx(0.55)
    equal = [[Prediction(0, 3, "x", 0.9), *(Prediction(i, i + 1, "x", 0.8 - i / 100) for i in range(10, 13)),
              Prediction(4, 7, "x", 0.2)]]  # 2/4 with one, 4/8 with all five  # fmt: skip
    assert best_threshold(two, equal) == pytest.approx((0.9 + 0.7) / 2)
