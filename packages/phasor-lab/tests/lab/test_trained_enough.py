"""A report says of which models nothing can be concluded, because they have hardly learnt anything."""

import json
import math

import pytest
import torch

from phasor_lab.lab import Decoder, evaluate, extend, report
from phasor_lab.lab.byte_pairs import byte_pairs_loss
from phasor_lab.lab.results import EVALUATION, gather, training_note

from .test_report import make_run


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


@pytest.fixture
def run(tmp_path):
    """``run(loss, pairs)`` is the folder of runs with one of that loss."""

    def of(loss, pairs):
        place = make_run(tmp_path, "rotary", 0, {64: 2.0, 128: 3.0})
        said = json.loads((place / EVALUATION).read_text()) | {"trained_loss": loss, "byte_pairs_loss": pairs}
        (place / EVALUATION).write_text(json.dumps(said))
        return tmp_path

    return of


def test_a_model_no_better_than_counting_is_called_hardly_trained(run):
    note = training_note(gather([run(2.5, 2.5)]))
    assert note.startswith("Hardly trained: rotary-seed0 (2.50 against 2.50).")
    assert "--tokens" in note


def test_a_trained_model_needs_no_note(run):
    assert training_note(gather([run(1.7, 2.5)])) == ""


@pytest.mark.parametrize("loss, pairs", [("2.5", 2.5), (2.5, "2.5"), (None, 2.5)])
def test_a_measurement_that_is_no_number_is_refused(run, loss, pairs):
    with pytest.raises(ValueError, match=r"evaluation.json must"):
        gather([run(loss, pairs)])


def test_the_page_and_the_numbers_carry_the_note(run, tmp_path):
    pytest.importorskip("matplotlib")
    data = report([run(3.0, 2.5)], tmp_path / "report")
    assert data["training"].startswith("Hardly trained")
    assert data["training"] in (tmp_path / "report" / "report.txt").read_text()
