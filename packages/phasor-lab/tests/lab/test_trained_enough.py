"""A report says of which models nothing can be concluded, because they have hardly learnt anything."""

import math

import pytest
import torch

from phasor_lab.lab import Decoder, evaluate, extend
from phasor_lab.lab.byte_pairs import byte_pairs_loss
from phasor_lab.lab.results import training_note

from .test_report import run_of


def test_pairs_are_counted_as_the_formula_says():
    train = torch.tensor([7, 8, 7, 8, 7], dtype=torch.uint8)
    p8, p9 = 3 / 261, 1 / 261  # add one to each of 256 bytes: 5 + 256
    after_7_comes_8, after_8_comes_9 = (2 + p8) / 3, p9 / 3
    loss = byte_pairs_loss(train, torch.tensor([7, 8, 9], dtype=torch.uint8))
    assert loss == pytest.approx(-(math.log(after_7_comes_8) + math.log(after_8_comes_9)) / 2, rel=1e-12)


def test_probabilities_after_each_byte_sum_to_one():
    train = torch.randint(0, 256, (500,), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    all_pairs = torch.tensor([[3, byte] for byte in range(256)], dtype=torch.uint8)
    assert sum(math.exp(-byte_pairs_loss(train, pair)) for pair in all_pairs) == pytest.approx(1, rel=1e-12)


def test_an_untrained_model_is_measured_against_counting(config, text):
    model = Decoder(config.model).eval()
    results = (
        evaluate(model, config, text, times=(1, 2), tokens=64),
        extend(model, config, text, factors=(2,), tokens=64),
    )
    for result in results:
        assert result["trained_loss"] > result["byte_pairs_loss"] > 0
    assert results[0]["trained_loss"] == pytest.approx(results[0]["by_length"][0]["loss"], rel=1e-6)


def test_a_model_no_better_than_counting_is_called_hardly_trained():
    note = training_note([run_of("rotary", 0, {}, trained_loss=2.5)])
    assert note.startswith("Hardly trained: rotary-seed0 (2.50 against 2.50).") and "--tokens" in note
    assert training_note([run_of("rotary", 0, {}, trained_loss=1.7)]) == ""
