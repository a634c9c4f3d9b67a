"""Entities on tokens: what the spans say is what the entities say, whatever the tokenizer; nothing is lost unsaid."""

import random

import pytest

from phasor_lab.ner.data import Encoded, Entity, Example, align

tokenizers = pytest.importorskip("tokenizers")
from .tokenizers_of_tests import TOKENIZERS, characters, sentence_piece, word_piece  # noqa: E402

# Words beyond the BMP, joined by ZWJ, with combining marks (also such that no letter holds), that NFKC makes longer or
# shorter; two spaces.
WORDS = ["Ada", "Bob", "𝒜da", "👩\u200d👩\u200d👧", "Zoé", "café", "ẹ́", "ﬁne", "12½", "नमस्ते", "中国", "", "Paris"]


def example(text: str, *entities: tuple[int, int]) -> Example:
    return Example(text, tuple(Entity(*span, "x") for span in entities), "test:1")


def characters_of(window: Encoded) -> list[tuple[int, int]]:
    """The spans as characters: first of the first token to last of the last."""
    return [(window.offsets[i][0], window.offsets[j][1]) for _, i, j in window.spans]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def test_every_run_of_words_is_found_again(tokenizer):
    random.seed(0)
    for _ in range(20):
        words = random.choices(WORDS, k=12)
        text = " ".join(words)
        begins = [sum(len(word) + 1 for word in words[:i]) for i in range(len(words))]
        spans = [
            (begins[i], begins[j] + len(words[j]))
            for i in range(len(words))
            for j in range(i, min(i + 3, len(words)))
            if words[i] and words[j]
        ]
        (window,), report = align([example(text, *spans)], tokenizer, ["x"])
        assert sorted(characters_of(window)) == sorted(spans)
        assert (report.entities, report.kept, report.lost) == (len(spans), len(spans), ())
        assert not any(window.special[i] or window.special[j] for _, i, j in window.spans)


def test_special_tokens_are_those_that_stand_for_no_character(tokenizer):
    text = "[SEP] Ada"
    (window,), report = align([example(text, (6, 9))], tokenizer, ["x"])
    assert report.kept == 1
    assert window.special == [begin == end for begin, end in window.offsets]
    added = [i for i, special in enumerate(tokenizer.encode(text).special_tokens_mask) if special]
    assert added in ([], [0, len(window.ids) - 1]) and all(window.special[i] for i in added)


def test_a_space_after_a_word_is_no_part_of_it():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"Ada ": 0, "met": 1}, unk_token="met"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    assert tokenizer.encode("Ada met").offsets == [(0, 4), (4, 7)]
    (window,), _ = align([example("Ada met", (0, 3))], tokenizer, ["x"])
    assert (window.offsets, window.spans) == ([(0, 3), (4, 7)], [(0, 0, 0)])


def test_a_character_that_two_tokens_share_with_their_neighbours_is_misaligned():
    merges = [("a", "Ã"), ("©", "b")]  # the two bytes of é, each joined to the letter beside it
    vocabulary = {token: i for i, token in enumerate(["a", "b", "Ã", "©", "aÃ", "©b"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    (window,), report = align([example("aéb", (0, 3), (1, 2))], tokenizer, ["x"])
    assert (window.offsets, window.spans, report.misaligned) == ([(0, 2), (1, 3)], [(0, 0, 1)], 1)


@pytest.mark.parametrize("text", ["a b", "e\u0301a"])
def test_white_space_and_marks_that_are_tokens_stay_tokens(text):
    (window,), _ = align([example(text, (0, 2))], characters(specials=False), ["x"])
    assert window.offsets == [(0, 1), (1, 2), (2, 3)] and window.spans == [(0, 0, 1)]


def test_what_is_misaligned_is_counted_and_named():
    text = " Bob and Ada"
    source = example(text, (1, 3), (1, 4), (0, 4), (5, 9), (9, 12))  # inside a word; Bob; and two with outer spaces
    (window,), report = align([source], word_piece(), ["x"])
    assert characters_of(window) == [(1, 4), (9, 12)]
    assert (report.entities, report.kept, report.misaligned, report.truncated) == (5, 2, 3, 0)
    assert [(entity.start, entity.end) for _, entity, _ in report.lost] == [(1, 3), (0, 4), (5, 9)]
    assert {(where, why) for where, _, why in report.lost} == {("test:1", "misaligned")}
    assert str(report) == (
        "2 of 5 entities kept, 3 misaligned with the tokens, 0 truncated by the windows; "
        "first misaligned: x from 1 to 3 at test:1"
    )


def test_characters_that_the_tokenizer_drops_cannot_end_an_entity():
    (window,), report = align([example("Ada\u200b met", (0, 4), (0, 3))], word_piece(), ["x"])
    assert characters_of(window) == [(0, 3)] and report.misaligned == 1


def test_crossing_entities_are_kept():
    spans = [(0, 3), (2, 5), (4, 6), (0, 6), (8, 9)]
    (window,), report = align([example("abcdefghij", *spans)], characters(), ["x"])
    assert sorted(characters_of(window)) == sorted(spans)
    assert report.kept == 5


def test_types_are_indices_of_labels():
    source = Example("ab", (Entity(0, 1, "y"), Entity(0, 1, "x"), Entity(1, 2, "x")), "f:3")
    (window,), _ = align([source], characters(specials=False), ["x", "y"])
    assert sorted(window.spans) == [(0, 0, 0), (0, 1, 1), (1, 0, 0)]
    with pytest.raises(ValueError, match=r"labels must hold every label, got 'y' at f:3 beside \['x'\]"):
        align([source], characters(), ["x"])


# Windows


def long_example(spans: list[tuple[int, int]], length: int = 100) -> Example:
    return example("".join(random.choices("AdaBobmet", k=length)), *spans)


@pytest.mark.parametrize("size, stride", [(10, None), (10, 0), (10, 9), (7, 3), (40, 1), (99, 8), (100, 5), (200, 5)])
def test_windows_hold_every_token_and_every_entity_up_to_the_stride(size, stride):
    share = size // 2 if stride is None else stride
    spans = [(i, i + n) for i in range(100) for n in range(1, share + 2) if i + n <= 100]
    windows, report = align([long_example(spans)], characters(), ["x"], max_length=size + 2, stride=stride)
    assert report.kept == len(spans) == len({span for window in windows for span in characters_of(window)})
    for window in windows:
        begin, end = window.offsets[1][0], window.offsets[-2][1]
        assert len(window.ids) == min(size, 100) + 2 and end - begin == min(size, 100)
        assert sorted(characters_of(window)) == sorted(span for span in spans if begin <= span[0] and span[1] <= end)
        assert window.special == [True] + [False] * (end - begin) + [True]
        assert window.shift == begin


def test_what_no_window_holds_is_truncated():
    spans = [(0, 11), (0, 10), (4, 11), (5, 14), (90, 100)]
    _, report = align([long_example(spans)], characters(), ["x"], max_length=12, stride=5)
    assert (report.kept, report.truncated, report.misaligned) == (3, 2, 0)
    lost = [(entity.start, entity.end, why) for _, entity, why in report.lost]
    assert lost == [(0, 11, "truncated"), (4, 11, "truncated")]


def test_special_tokens_are_around_every_window():
    tokenizer = sentence_piece()
    windows, _ = align([example("Ada met Bob " * 30)], tokenizer, ["x"], max_length=9)
    assert len(windows) > 5
    for window in windows:
        tokens = [tokenizer.id_to_token(i) for i in window.ids]
        assert (len(tokens), tokens[0], tokens[-1]) == (9, "[CLS]", "[SEP]")


def test_examples_are_numbered_and_those_without_tokens_have_no_window():
    windows, report = align([example("A"), example("\u200b", (0, 1)), example("B")], word_piece(), ["x"])
    assert [window.example for window in windows] == [0, 2]
    assert report.misaligned == 1
    assert align([], word_piece(), ["x"])[0] == []


def test_the_tokenizers_truncation_and_padding_are_not_used():
    tokenizer = characters()
    tokenizer.enable_truncation(5, stride=2)
    tokenizer.enable_padding(length=50, pad_token="[UNK]")
    windows, _ = align([example("Ada met Bob")], tokenizer, ["x"])
    assert [len(window.ids) for window in windows] == [13]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"max_length": 2}, "max_length must be an integer of at least 3, got 2"),
        ({"max_length": 8.0}, "max_length must be an integer of at least 3, got 8.0"),
        ({"max_length": 8, "stride": 6}, "stride must be below max_length less the special tokens, 6 here, got 6"),
        ({"max_length": 8, "stride": -1}, "stride must be an integer of at least 0, got -1"),
    ],
)
def test_lengths_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        align([example("Ada")], characters(), ["x"], **arguments)
