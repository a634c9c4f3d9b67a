"""Rankings by text: on models that the lab trained, the reading that they were trained with comes first.

Every case declares something wrong of a model of `train_readings`. All of them: `make slow ARGS=tests/doctor`.
"""

import json
import re

import pytest
import torch

from phasor.tools.checkpoints.formats import read
from phasor.tools.doctor.path_diagnosis import of_text
from phasor.tools.doctor.text import by_text, rank, rank_readings
from phasor.tools.doctor.text.ranking import ranked
from phasor.tools.doctor.text.readings import around
from phasor.tools.doctor.text.tokens import token_windows
from phasor.tools.doctor.text.weights import LoadedWeights
from stories import converted, told

from .declared import HERE, LINEAR, TRUE, YARN, folder

pytest.importorskip("transformers")
TEXT = HERE / "held_out.txt"
WORDS = 50_000
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
def test_what_the_page_shows_is_what_is_printed(tmp_path):
    """docs/doctor_text.md; another machine may round a loss otherwise."""
    page = (HERE.parents[2] / "docs/doctor_text.md").read_text(encoding="utf-8")
    shown = page.partition("The readings are ranked by their loss:\n\n```\n")[2].partition("```")[0].splitlines()
    said = str(by_text(folder("plain", AWAY, tmp_path / "m"), TEXT)).splitlines()
    number = re.compile(r"\d\.\d{3}")
    assert len(shown) > 5
    for line in shown:
        (same,) = (one for one in said if number.sub("", one) == number.sub("", line)) if line.strip(".") else ("",)
        assert [float(x) for x in number.findall(same)] == pytest.approx(
            list(map(float, number.findall(line))), abs=2e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("model", TRUE)
def test_nothing_speaks_against_what_is_so(model, tmp_path):
    found = by_text(folder(model, TRUE[model], tmp_path / "m"), TEXT)
    print(f"\n{model}: {found.says()}")
    assert found.best == "as stated" and found.verdict != "another", str(found)


@pytest.mark.slow
def test_a_real_checkpoint_is_as_its_format_says(shared_data, tmp_path):
    """stories260K, trained with base 10000, on stories of its own."""
    folder = converted(shared_data, tmp_path / "hf")
    (tmp_path / "story.txt").write_text("given as tokens")
    tokens = told(folder, rows=3, tokens=300).flatten().tolist()
    found = by_text(folder, tmp_path / "story.txt", tokenizer=lambda words: {"input_ids": tokens})
    assert found.best == "as stated" and found.verdict != "another", str(found)
    assert found.rows[0].loss < 2.0 and "pairs interleaved in the weights" in [row.name for row in found.rows[5:]]


# --- quickly ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def windows() -> torch.Tensor:
    return token_windows(torch.tensor(list(TEXT.read_bytes())), 64, 8)


def loaded(name, changes, path, swap=False):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder(name, changes, path / "m", swap))


def test_a_wrong_base_is_told_and_the_model_stays_as_it_was(monkeypatch, tmp_path):
    model = loaded("plain", AWAY, tmp_path)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (tmp_path / "text.txt").write_bytes(TEXT.read_bytes()[:600])
    monkeypatch.setattr(rank, "ROUNDS", 1)
    found = by_text(model, tmp_path / "text.txt")
    assert found.best == "base 10000" and found.verdict == "another" and found.length == 74
    assert [row.name for row in found.rows].index(INTERLEAVED) > 5 and len(found.rows) > 10
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert str(found).startswith(
        "the weights are not as stated; this text cannot tell between base 10000; base 31250 (loss "
    ) and "not tried: " in str(found)
    assert json.loads(json.dumps(found.to_dict()))["best"] == "base 10000"


def test_a_base_off_by_less_than_four_times_is_no_verdict(windows, tmp_path):
    """Of a model with base 500000 that declares 1200000, nothing that is tried is better."""
    found = rank_readings(loaded("high_base", {"rope_theta": 1.2e6}, tmp_path), windows[:8], rounds=1)
    assert found.verdict != "another", str(found)


def test_weights_that_know_nothing_cannot_tell(windows, tmp_path):
    model = loaded("plain", {}, tmp_path)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    found = rank_readings(model, windows[:8], rounds=1)
    assert found.verdict == "cannot tell" and found.exit_code == 0
    assert (
        found.says()
        == "cannot tell: no reading beats a uniform guess on this text: untrained, or trained on other text"
    )


def test_the_margin_is_that_of_nearly_all_resamples():
    """Of 8 windows that are behind by 0 or 0.4 nats, a resample of 8 is behind by 0.05 or less in 7 of 2000 (binomial:
    P(at most one of 8) = 9 / 256 = 0.035; P(none) = 1 / 256): the mean, 0.2, is not above the margin."""
    own = torch.full((8, 4), 2.0, dtype=torch.float64)
    other = own + torch.tensor([0.0, 0.4] * 4)[:, None]
    found = ranked({"as stated": own, "other": other}, "as stated", {}, WORDS)
    assert found.rows[1].at_least == 0.0 and found.verdict == "cannot tell"
    assert ranked({"as stated": own, "other": own + 0.03}, "as stated", {}, WORDS).verdict == "as stated"
    assert ranked({"as stated": own, "other": own + 0.019}, "as stated", {}, WORDS).verdict == "cannot tell"
    assert ranked({"as stated": own + 0.03, "other": own}, "as stated", {}, WORDS).verdict == "another"


def test_readings_with_long_names_keep_their_ends():
    """Two that differ at the end of their names only, as bases of 10000 and 100000 in the other layout do."""
    own = torch.full((8, 4), 2.0, dtype=torch.float64)
    names = [f"{INTERLEAVED}, base {base}, linear factor 4" for base in (10000, 100000)]
    shown = str(ranked({"as stated": own, **dict.fromkeys(names, own + 1)}, "as stated", {}, WORDS)).splitlines()
    assert all(any(line.startswith(f"{name} ") for line in shown) for name in names)
    assert len({line.index("3.000") for line in shown if "3.000" in line}) == 1


def test_bad_input_gets_one_clear_line(windows, tmp_path):
    model = loaded("plain", {}, tmp_path)
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "binary").write_bytes(b"\0\1\2" * 999)
    lines = {
        "short.txt": "text must have at least 520 tokens (8 windows of 64), got 9",
        "binary": "must be text in UTF-8",
        "absent.txt": "cannot be opened",
    }
    for name, line in lines.items():
        with pytest.raises(ValueError, match=re.escape(line)) as error:
            by_text(tmp_path / "m", tmp_path / name)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="windows must be at least 8"):
        rank_readings(model, windows[:3])
    with pytest.raises(ValueError, match="windows must hold tokens below 256, got 0 to 900"):
        rank_readings(model, windows.clamp(max=0) + 900 * (torch.arange(65) == 3))
    with pytest.raises(ValueError, match="model must be a transformers model"):
        rank_readings(torch.nn.Linear(2, 2), windows)
    with pytest.raises(ValueError, match="model must be a transformers model or the path"):
        by_text(3, tmp_path / "short.txt")
    model.config.vocab_size = 300
    with pytest.raises(ValueError, match="has no tokenizer that works"):
        by_text(model, TEXT)


def test_a_live_model_and_its_folder_are_the_same_weights(windows, tmp_path):
    model = loaded("plain", AWAY, tmp_path)
    live, folder_ = LoadedWeights.of_model(model), LoadedWeights.of_source(read(tmp_path / "m"))
    assert live.stated == folder_.stated and live.stated.layout == "halves"
    other = next(around(live.stated))
    assert other.layout == "interleaved"
    for reading in (live.stated, other):
        assert torch.equal(live.losses(reading, windows[:2]), folder_.losses(reading, windows[:2]))


def test_of_several_that_are_as_good_none_is_advised():
    """Untrained far from the guess, log(50000) = 10.8, by nothing; trained, the two that tie are both named."""
    own = torch.full((8, 4), 2.0, dtype=torch.float64)
    losses = {"as stated": own + 1, "base 2500": own, "base 10000": own + 0.001}
    found = ranked(losses, "as stated", {}, WORDS)
    assert found.verdict == "another" and found.tied == ("base 2500", "base 10000")
    assert "this text cannot tell between base 2500; base 10000 (" in found.says() and "but:" not in found.says()
    (check,) = of_text(found)
    assert check.verdict == "wrong" and "write" not in check.way_out and "none is shown" in check.way_out
    (check,) = of_text(ranked({name: x for name, x in losses.items() if name != "base 10000"}, "as stated", {}, WORDS))
    assert "but: base 2500" in check.reason and check.way_out == "write that reading into the config"
    guess = ranked({name: x + 9 for name, x in losses.items()}, "as stated", {}, WORDS)
    assert guess.verdict == "cannot tell" and not guess.exit_code and not guess.knows
