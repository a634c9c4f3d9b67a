"""Decoding: thresholds as probabilities, and which spans may stand together (checked against the rule itself)."""

import itertools
import math
import random

import pytest
import torch

from phasor.encodings.heads import Span, decode, select


def square(*cells, types=2, length=8):
    scores = torch.full((1, types, length, length), -math.inf)
    for kind, start, end, score in cells:
        scores[0, kind, start, end] = score
    return scores


def test_all_spans_above_the_threshold_in_the_order_of_the_text():
    scores = square((1, 3, 5, 0.5), (0, 3, 5, 2.0), (0, 0, 1, 0.1), (0, 2, 2, 0.0), (1, 4, 4, -1.0))
    (spans,) = decode(scores)
    assert [span[:3] for span in spans] == [(0, 0, 1), (0, 3, 5), (1, 3, 5)]
    assert spans[1] == Span(0, 3, 5, pytest.approx(1 / (1 + math.exp(-4))))
    assert [span.score for span in decode(square((0, 0, 0, 800.0), (0, 1, 1, -800.0)), threshold=0.0)[0]] == [1.0, 0.0]
    assert decode(torch.zeros(0, 2, 3, 3)) == [] and decode(torch.zeros(1, 2, 0, 0), mode="nested") == [[]]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_the_threshold_is_a_probability(threshold):
    scores = torch.randn(2, 3, 6, 6) * 2
    scores[scores < -3] = -math.inf
    expected = (2 * scores.double()).sigmoid() > threshold
    found = {(b, *span[:3]) for b, row in enumerate(decode(scores, threshold=threshold)) for span in row}
    assert found == {tuple(cell) for cell in expected.nonzero().tolist()}


def test_scores_whose_probabilities_are_equal_are_still_ranked():
    scores = square((0, 0, 3, 30.0), (0, 2, 5, 40.0))
    assert [span[:3] for span in decode(scores, mode="flat")[0]] == [(0, 2, 5)]


def test_modes():
    cells = [(0, 0, 5, 1.0), (0, 1, 2, 3.0), (1, 1, 2, 2.0), (0, 2, 3, 2.5), (1, 7, 7, 0.2)]
    found = {mode: [span[:3] for span in decode(square(*cells), mode=mode)[0]] for mode in ("all", "nested", "flat")}
    assert found == {
        "all": [(0, 0, 5), (0, 1, 2), (1, 1, 2), (0, 2, 3), (1, 7, 7)],
        "nested": [(0, 0, 5), (0, 1, 2), (1, 1, 2), (1, 7, 7)],
        "flat": [(0, 1, 2), (1, 7, 7)],
    }


def crossing(a, b):
    return a.start < b.start <= a.end < b.end or b.start < a.start <= b.end < a.end


def overlapping(a, b):
    return a.start <= b.end and b.start <= a.end


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("mode, clash", [("nested", crossing), ("flat", overlapping)])
def test_select_is_the_greedy_rule(mode, clash, seed):
    draw = random.Random(seed)
    spans = []
    for kind in range(draw.randrange(40)):
        start = draw.randrange(12)
        spans.append(Span(kind % 3, start, start + draw.randrange(6), draw.random()))
    kept = []
    for span in sorted(spans, key=lambda span: -span.score):
        if not any(clash(span, other) for other in kept):
            kept.append(span)
    got = select(spans, mode)
    assert got == sorted(kept, key=lambda span: (span.start, span.end, span.type))
    assert not any(clash(a, b) for a, b in itertools.combinations(got, 2))
