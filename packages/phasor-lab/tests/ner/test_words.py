"""Words by their features: the hashes, the encoders on them, vectors from a file, and what is chosen by itself."""

import json
from zlib import crc32

import pytest
import torch
from torch import nn

from phasor_lab.ner import Entity, Example, load, make_tokenizer, predict, train
from phasor_lab.ner.data import hold_out, usual_mode
from phasor_lab.ner.data.windows import align
from phasor_lab.ner.encoders import Convolution
from phasor_lab.ner.model import collate, new_model
from phasor_lab.ner.words import FEATURES, hashed, have_words, token_ids

from .toy import DEV, LABELS, TRAIN, model, model_config, train_config

WORDS = make_tokenizer("words", [])


def word_config(**changes):
    return model_config(**{"vocab": 1, "rows": 500, "encoder": "convolution", "dim": 32, **changes})


def batch(config, tokenizer=WORDS, texts=("ada met bob in rome", "eve")):
    examples = [Example(text, (), "") for text in texts]
    return collate(align(examples, tokenizer, LABELS, token_ids=token_ids(config))[0])


def test_a_feature_is_its_name_and_value_hashed():
    rows = dict(zip(FEATURES, hashed("Berlin", 1000), strict=True))
    for name, value in {"form": "Berlin", "lower": "berlin", "prefix3": "Ber", "suffix2": "in", "shape": "Xxx"}.items():
        assert rows[name] == crc32(f"{name}={value}".encode()) % 1000


def test_words_are_cut_at_spaces_and_signs_and_keep_their_marks():
    text = "Ada's U.S. co-op 2.5 हिन्दी @bob_x"
    tokens = [text[i:j] for i, j in WORDS.encode(text).offsets]
    assert tokens == ["Ada", "'", "s", "U", ".", "S", ".", "co", "-", "op", "2", ".", "5", "हिन्दी", "@", "bob_x"]


@pytest.mark.parametrize(
    "text, spaced",
    [("Ада и Боб", True), ("ادا و باب", True), ("彭小军认为 IT", False), ("ひらがな", False), ("2014", True)],
)
def test_whether_texts_have_words_is_told_by_their_scripts(text, spaced):
    assert have_words([text]) is spaced


def test_a_sentence_of_words_is_scored_alike_alone_and_padded():
    config = word_config(layers=2)
    spans = new_model(config, 0).eval()
    both, alone = batch(config), batch(config, texts=("eve",))
    assert both.ids.shape == (2, 5, len(FEATURES))
    torch.testing.assert_close(spans(both.ids, both.mask)[1:, :, :1, :1], spans(alone.ids, alone.mask))


def test_the_convolution_is_torchs_with_a_maxout():
    config = word_config(layers=1)
    encoder = Convolution(config).eval()
    inputs = batch(config)
    x = encoder.embedding(inputs.ids)
    maps, norm = encoder.layers[0].maps, encoder.layers[0].norm
    conv = nn.Conv1d(32, 96, 3, padding=1)
    conv.weight.data.copy_(maps.weight.view(96, 3, 32).transpose(1, 2))
    conv.bias.data.copy_(maps.bias.data)
    pooled = conv((x * inputs.mask[..., None]).transpose(1, 2)).unflatten(1, (32, 3)).amax(2).transpose(1, 2)
    torch.testing.assert_close(encoder(inputs.ids, inputs.mask), x + norm(pooled))


def test_features_are_dropped_in_training_only():
    config = word_config(dropout=0.0)
    encoder, inputs = Convolution(config), batch(config)
    torch.manual_seed(0)
    assert not torch.equal(encoder(*inputs[:2]), encoder(*inputs[:2]))
    encoder.eval()
    assert torch.equal(encoder(*inputs[:2]), encoder(*inputs[:2]))


def test_bad_settings_of_words_are_refused():
    with pytest.raises(ValueError, match="rows must be an integer of at least 1, got 0"):
        word_config(rows=0)


def test_a_model_on_words_learns_and_is_read_back(tmp_path):
    result = train(new_model(word_config(), 0), WORDS, TRAIN, DEV, train_config(epochs=6), tmp_path)
    assert result.dev.f1 > 0.95
    saved = load(tmp_path)
    assert [span.label for span in predict(saved, ["noor and ivan in lima"])[0]] == ["name", "name", "place"]
    assert predict(saved, [""]) == [[]]
    assert json.loads((tmp_path / "config.json").read_text())["threshold"] == saved.about["threshold"]


def test_a_model_on_characters_has_another_shape_of_ids():
    assert collate(align(TRAIN[:2], WORDS, LABELS)[0]).ids.ndim == 2
    assert model().config.words is False and token_ids(model().config) is None


def test_held_out_texts_are_a_tenth_and_always_the_same(tmp_path):
    texts, held = hold_out(TRAIN, tmp_path)
    assert len(texts) == 108 and len(held) == 12
    assert sorted(texts + held, key=lambda e: e.source) == sorted(TRAIN, key=lambda e: e.source)
    assert hold_out(TRAIN, tmp_path) == (texts, held)


@pytest.mark.parametrize("count, message", [(19, "at least 20 texts, .* got 19"), (20, "must hold more entities")])
def test_too_little_to_hold_out_is_one_line(tmp_path, count, message):
    with pytest.raises(ValueError, match=message):
        hold_out([Example("so", (), f"x:{i}") for i in range(count)], tmp_path)


def test_crossing_entities_ask_for_all_spans():
    crossing = Example("a b c", (Entity(0, 3, "x"), Entity(2, 5, "x")), "")
    assert usual_mode([crossing]) == "all" and usual_mode(TRAIN) == "nested"
