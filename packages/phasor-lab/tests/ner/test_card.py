"""The model card, by counts that can be made by hand."""

import re

import pytest

from phasor_lab.ner import Entity, Example, evaluate
from phasor_lab.ner.card import CARD, model_card
from phasor_lab.ner.metrics import Prediction, best_threshold

from .toy import model_config, train_config

RUN = {"train": train_config().to_dict(), "data": {"train": "12ab", "dev": "34cd"}}
EPOCH = {"epoch": 2, "threshold": 0.25}


def example(text, *entities):
    return Example(text, tuple(Entity(*entity) for entity in entities), "data/a|b.json:1")


def card(data, dev, predictions):
    config = model_config(labels=("name", "place"))
    return model_card(config, EPOCH, data, dev, predictions, RUN)


def test_a_card_counts_by_label_length_and_novelty():
    data = [example("Ada in Rome", (0, 3, "name"), (7, 11, "place"))]
    dev = [example("Ada met Zoe in Oslo", (0, 3, "name"), (8, 11, "name"), (15, 19, "place"))]
    found = [[Prediction(0, 3, "name", 0.9), Prediction(15, 19, "name", 0.3)]]
    text = card(data, dev, found)
    assert "| all | 0.400 | 0.500 | 0.333 | 1 | 2 | 3 |" in text  # 2 * 1 / (2 + 3)
    assert "| name | 0.500 | 0.500 | 0.500 | 1 | 2 | 2 |" in text
    assert "| 3 to 4 | 0.400 |" in text  # "Ada", "Zoe" and "Oslo": all spans have 3 or 4 characters
    assert "| that occur in the training data, with this label | 1 | 1 | 1.000 |" in text
    assert "| that are new | 0 | 2 | 0.000 |" in text
    assert "| place | name | 1 |" in text
    assert "Labels with fewer than 20 entities in the training data: name (1), place (1)." in text
    assert "Labels of which it found none in the development data: place." in text
    assert "| training | a\\|b.json | 1 | 2 | `12ab` |" in text and "Seed 0; epoch 2 of at most 3" in text


def test_labels_in_a_card_are_no_markup():
    label = "`a`|*b* ![x](http://e.org/p) <img src=x>"
    config = model_config(labels=(label,))
    data = [example("Ada", (0, 3, label))]
    text = model_card(config, EPOCH, data, data, [[Prediction(0, 3, label, 0.9)]], RUN)
    shown = "\\`a\\`\\|\\*b\\* !\\[x\\](http://e.org/p) &lt;img src=x&gt;"
    assert f"| {shown} | 1.000 |" in text and text.count(shown) == text.count("e.org") == 2  # also as a rare one


def test_training_writes_the_card_of_the_best_epoch(trained):
    text = (trained.folder / CARD).read_text()
    f1 = re.search(r"\| all \| (\d\.\d{3}) ", text)
    assert f1 and f1[1] == f"{trained.dev.f1:.3f}" and f"epoch {trained.best_epoch} of at most" in text


def test_the_best_threshold_is_that_of_a_search_over_all():
    """Against every threshold between two scores, tried one by one."""
    from itertools import pairwise

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


def test_labels_that_were_not_measured_are_named():
    data = [example("Ada in Rome", (0, 3, "name"), (7, 11, "place"))]
    dev = [example("Zoe", (0, 3, "name"))]
    text = card(data, dev, [[Prediction(0, 3, "name", 0.9)]])
    assert "Labels that do not occur in the development data, so were not measured: place." in text
