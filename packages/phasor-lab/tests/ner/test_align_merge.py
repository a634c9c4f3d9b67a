"""Windows merged: what a perfect scorer says of the windows is what it says of the whole text, each span once."""

import random

import pytest

from phasor.encodings.heads import Span
from phasor_lab.ner.data import Encoded, Example, Prediction, align, merge

processors = pytest.importorskip("tokenizers.processors")
from .tokenizers_of_tests import TOKENIZERS, characters  # noqa: E402

LABELS = ["x", "y"]


def score(text: str, start: int, end: int, label: int) -> float:
    """The perfect scorer's probability of a span: a function of what the characters are, half of them above 0.5."""
    return random.Random(f"{text[start:end]}{label}").random()


def predictions(window: Encoded, text: str, *, longest: int) -> list[Span]:
    """All spans of up to ``longest`` tokens that the scorer likes."""
    content = [i for i, special in enumerate(window.special) if not special]
    spans = []
    for label in range(len(LABELS)):
        for i in content:
            for j in (j for j in content if i <= j < i + longest):
                begin, end = window.offsets[i][0], window.offsets[j][1]
                if begin < end and (probability := score(text, begin, end, label)) > 0.5:
                    spans.append(Span(label, i, j, probability))
    return spans


def merged(texts: list[str], tokenizer, mode: str, *, longest: int, **shape: int) -> list[list[Prediction]]:
    windows, _ = align([Example(text, (), "f:1") for text in texts], tokenizer, LABELS, **shape)
    found = [predictions(window, texts[window.example], longest=longest) for window in windows]
    return merge(windows, found, LABELS, examples=len(texts), mode=mode)


@pytest.mark.parametrize("mode", ["all", "nested", "flat"])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_windows_of_a_perfect_scorer_equal_the_whole_text(name, mode):
    tokenizer = TOKENIZERS[name]()
    random.seed(0)
    words = ["Ada", "Bob", "𝒜da", "👩‍👩‍👧", "Zoe\u0301", "ﬁne", "12½", "नमस्ते", "中国"]
    texts = [" ".join(random.choices(words, k=n)) for n in (1, 6, 20)]
    whole = merged(texts, tokenizer, mode, longest=4)
    assert len(whole[0]) < len(whole[2])
    for max_length, stride in [(8, 3), (9, 5), (16, 3), (10, None)]:
        assert merged(texts, tokenizer, mode, longest=4, max_length=max_length, stride=stride) == whole


def windows_of(length: int, **shape: int) -> list[Encoded]:
    return align([Example("a" * length, (), "f:1")], characters(specials=False), LABELS, **shape)[0]


def test_the_window_with_most_context_judges():
    windows = windows_of(12, max_length=8, stride=4)
    assert [window.shift for window in windows] == [0, 4]
    # characters 5 and 6: two tokens to the end of the first window, one to the beginning of the second
    first, second = Span(0, 5, 5, 0.9), Span(0, 1, 1, 0.6)
    assert merge(windows, [[first], []], LABELS, examples=1) == [[Prediction(5, 6, "x", 0.9)]]
    assert merge(windows, [[], [second]], LABELS, examples=1) == [[]]
    assert merge(windows, [[first], [second]], LABELS, examples=1) == [[Prediction(5, 6, "x", 0.9)]]
    first, second = Span(0, 6, 6, 0.6), Span(0, 2, 2, 0.9)
    assert merge(windows, [[first], [second]], LABELS, examples=1) == [[Prediction(6, 7, "x", 0.9)]]


def test_the_end_of_the_text_hides_nothing():
    windows = windows_of(12, max_length=8, stride=6)
    assert [window.shift for window in windows] == [0, 2, 4]
    # characters 4 to 11 touch both edges of the last window, but only it holds them; 0 to 7 likewise in the first
    found = [[Span(0, 0, 7, 0.7)], [Span(0, 0, 0, 0.9)], [Span(0, 0, 7, 0.8)]]
    assert merge(windows, found, LABELS, examples=1) == [[Prediction(0, 8, "x", 0.7), Prediction(4, 12, "x", 0.8)]]
    # character 11, the last: seven tokens before it in its window, nothing cut off after it
    assert merge(windows, [[], [], [Span(1, 7, 7, 0.6)]], LABELS, examples=1) == [[Prediction(11, 12, "y", 0.6)]]


def test_modes_reach_over_windows():
    windows = windows_of(12, max_length=6, stride=0)
    left, right = Span(0, 2, 5, 0.9), Span(0, 0, 3, 0.8)
    both = [Prediction(2, 6, "x", 0.9), Prediction(6, 10, "x", 0.8)]
    assert merge(windows, [[left], [right]], LABELS, examples=1, mode="flat") == [both]
    overlapping = [[Span(0, 2, 5, 0.9), Span(1, 5, 5, 0.8), Span(0, 1, 3, 0.7)], []]
    kept = {mode: [p.score for p in merge(windows, overlapping, LABELS, examples=1, mode=mode)[0]]
            for mode in ("all", "nested", "flat")}  # fmt: skip
    assert kept == {"all": [0.7, 0.9, 0.8], "nested": [0.9, 0.8], "flat": [0.9]}


def test_a_window_does_not_judge_where_it_has_special_tokens():
    tokenizer = characters()
    end = ("[SEP]", tokenizer.token_to_id("[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [SEP] [SEP]", special_tokens=[end])
    windows, _ = align([Example("a" * 8, (), "f:1")], tokenizer, LABELS, max_length=6, stride=0)
    found = [[], [Span(0, 0, 0, 0.9)]]  # at the place of the first window's [SEP]
    assert merge(windows, found, LABELS, examples=1) == [[Prediction(4, 5, "x", 0.9)]]


def test_texts_without_windows_have_no_predictions():
    assert merge([], [], LABELS, examples=2) == [[], []]


def test_errors():
    windows, _ = align([Example("Ada", (), "f:1")], characters(), LABELS)
    with pytest.raises(ValueError, match="predictions must have one list a window, 1 here, got 0"):
        merge(windows, [], LABELS, examples=1)
    with pytest.raises(ValueError, match="predictions must not begin or end with a special token, got Span"):
        merge(windows, [[Span(0, 0, 2, 0.9)]], LABELS, examples=1)
    with pytest.raises(ValueError, match="mode must be 'all', 'nested' or 'flat', got 'best'"):
        merge(windows, [[]], LABELS, examples=1, mode="best")  # type: ignore[arg-type]
