"""Rankings by text: on models that the lab trained, the reading that they were trained with comes first.

Every case declares something wrong of a model of `train_readings`. All of them: `make slow ARGS=tests/doctor`.
"""

import pytest

from phasor.doctor.text import by_text

from .declared import HERE, LINEAR, TRUE, YARN, folder

pytest.importorskip("transformers")
TEXT = HERE / "held_out.txt"
HALVES = "pairs in halves in the weights"
INTERLEAVED = "pairs interleaved in the weights"
AWAY = {"rope_theta": 500000.0}

# model, what is declared, whether its weights are stored in the other layout, the true reading in words
WRONG = [
    ("plain", AWAY, False, "base 10000"),
    ("plain", {"rope_theta": 160.0}, False, "base 10000"),
    ("plain", {"rope_theta": 5e6}, False, "base 10000"),
    ("plain", {"rope_scaling": LINEAR}, False, "no scaling"),
    ("plain", {"rope_scaling": YARN}, False, "no scaling"),
    ("plain", {}, True, INTERLEAVED),
    ("plain", {**AWAY, "rope_scaling": LINEAR}, False, "base 10000, no scaling"),
    ("high_base", {}, False, "base 500000"),
    ("high_base", {"rope_theta": 5e6}, False, "base 500000"),
    ("high_base", {**AWAY, "rope_scaling": {**LINEAR, "factor": 2.0}}, False, "no scaling"),
    ("high_base", AWAY, True, INTERLEAVED),
    ("interleaved", {}, False, INTERLEAVED),
    ("interleaved", AWAY, False, f"{INTERLEAVED}, base 10000"),
    ("linear", {}, False, "linear factor 4"),
    ("linear", {"rope_scaling": YARN}, False, "linear factor 4"),
    ("linear", {"rope_scaling": {**LINEAR, "factor": 16.0}}, False, "linear factor 4"),
    ("linear", {**AWAY, "rope_scaling": LINEAR}, False, "base 10000"),
    ("linear", {"rope_scaling": LINEAR}, True, INTERLEAVED),
    ("yarn", {}, False, "yarn factor 4 from 64"),
    ("yarn", {"rope_scaling": LINEAR}, False, "yarn factor 4 from 64"),
    ("yarn", {"rope_scaling": {**YARN, "factor": 16.0}}, False, "yarn factor 4 from 64"),
    ("yarn", {**AWAY, "rope_scaling": YARN}, False, "base 10000"),
    ("partial", {"partial_rotary_factor": 1.0}, False, "8 of 32 channels"),
    ("partial", {"partial_rotary_factor": 0.5}, False, "8 of 32 channels"),
    ("partial", AWAY, False, "base 10000"),
]


@pytest.mark.slow
@pytest.mark.parametrize("model, declared, swapped, truth", WRONG)
def test_the_true_reading_comes_first(model, declared, swapped, truth, tmp_path):
    found = by_text(
        folder(model, {**TRUE.get(model, {}), **declared} if model == "partial" else declared, tmp_path / "m", swapped),
        TEXT,
    )
    print(f"\n{model} {declared}: {found.says()}")
    assert found.best == truth, str(found)
    assert found.verdict == "another" and found.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("model", TRUE)
def test_nothing_speaks_against_what_is_so(model, tmp_path):
    found = by_text(folder(model, TRUE[model], tmp_path / "m"), TEXT)
    assert found.best == "as stated" and found.verdict == "as stated", str(found)
