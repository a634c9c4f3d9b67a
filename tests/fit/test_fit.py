"""Searched divisors on a small trained model, judged by transformers' own LongRoPE; bad input."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForCausalLM

import limited
import phasor
from doctor.declared import HERE, folder
from phasor.tools.fit import fit, fit_folder
from phasor.tools.fit.fit import JUDGED, known_schemes, written
from phasor.tools.fit.search import Candidate, search
from phasor.tools.fit.tables import GivenTables, windows_of

TEXT = HERE / "held_out.txt"  # 16,000 bytes that the models were not trained on
TOKENS = torch.tensor(list(TEXT.read_bytes()))
TRAINED = 256
SRC = Path(phasor.__file__).parents[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folder("plain", {}, tmp_path_factory.mktemp("fit") / "m")


@pytest.fixture
def model(place):
    return AutoModelForCausalLM.from_pretrained(place).eval()


def loss(model, windows):
    with torch.no_grad():
        logits = model(windows[:, :-1], use_cache=False).logits
    return float(F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()))


def test_the_formulas_as_divisors_are_transformers_own(model, place):
    """Each known scheme, given as divisors, has the loss of a model that transformers builds with that scaling."""
    found = fit(model, TOKENS, length=1024, evaluations=5)
    judged = windows_of("test", TOKENS[8000:], 1024, JUDGED)
    config = json.loads((place / "config.json").read_text())
    for name in ("none", "linear", "yarn", "llama3"):
        spec = phasor.read_config(config).layers[0].replace(scaling=known_schemes(4.0, TRAINED)[name])
        like = phasor.write_config(replace(phasor.read_config(config), layers=(spec, spec)), like=config)
        theirs = AutoModelForCausalLM.from_pretrained(place, config=AutoConfig.for_model(**like)).eval()
        assert found.losses[name] == pytest.approx(loss(theirs, judged), abs=1e-4), name


def read_by_transformers(like, place):
    return AutoModelForCausalLM.from_pretrained(place, config=AutoConfig.for_model(**like)).eval()


def test_what_is_written_is_what_was_found(model, place):
    """transformers' LongRoPE reads it: beyond the trained length the loss of the fit, inside it the model's own."""
    found = fit(model, TOKENS, length=1024, evaluations=60)
    assert found.gain > 0
    config = json.loads((place / "config.json").read_text())
    like = written(found, config)
    assert like["rope_scaling"]["rope_type"] == "longrope" and like["max_position_embeddings"] == 1024
    theirs = read_by_transformers(like, place)
    far, near = (windows_of("test", TOKENS[8000:], n, JUDGED) for n in (1024, TRAINED))
    assert found.losses["fitted"] == pytest.approx(loss(theirs, far), abs=1e-4)
    assert found.inside["none"] == pytest.approx(loss(theirs, near), abs=1e-4)
    assert phasor.read_config(like).layers[0].scaling == found.scaling


def test_without_a_gain_the_best_known_scheme_is_written(model, place):
    found = fit(model, TOKENS, length=1024, evaluations=5)  # the formulas alone, without their attention factors
    config = json.loads((place / "config.json").read_text())
    assert found.gain <= 0 and found.best_known == "llama3" and "worse than llama3: no gain" in str(found)
    like = written(found, config)
    assert like["rope_scaling"]["rope_type"] == "llama3"
    far = windows_of("test", TOKENS[8000:], 1024, JUDGED)
    assert found.losses["llama3"] == pytest.approx(loss(read_by_transformers(like, place), far), abs=1e-4)


def test_minutes_end_a_search(model):
    assert fit(model, TOKENS, length=512, minutes=0.0).tried == 5  # the known schemes are always tried


def test_the_model_stays_as_it_was_and_a_seed_decides_all(model):
    before = {name: tensor.clone() for name, tensor in (*model.state_dict().items(), *model.named_buffers())}
    kept = dict(vars(model.model.rotary_emb))
    one, other = (fit(model, TOKENS, length=512, evaluations=12, seed=3) for _ in range(2))
    assert one == other and one.tried == 12 and one.windows == 15
    after = dict((*model.state_dict().items(), *model.named_buffers()))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {k: v for k, v in kept.items() if k[0] != "_"} == {
        k: v for k, v in vars(model.model.rotary_emb).items() if k[0] != "_"
    }
    assert json.loads(json.dumps(one.to_dict()))["best_known"] == one.best_known and "judged on 15 windows" in str(one)


def test_a_search_goes_down_keeps_its_bounds_and_its_budget():
    seen: list[Candidate] = []

    def score(divisors):
        seen.append(Candidate(0.0, divisors))
        return sum((d - 2.5) ** 2 for d in divisors)

    starts = [(1.0,) * 8, (4.0,) * 8]
    best = search(score, starts, 4.0, budget=300, patience=300, seed=0)
    assert len(seen) == 300 and best.score < 3.0 < min(score(start) for start in starts)
    assert all(1.0 <= d <= 8.0 for candidate in seen[2:300] for d in candidate.divisors)
    seen.clear()
    search(lambda d: seen.append(Candidate(0.0, d)) or 1.0, starts, 4.0, budget=300, patience=7, seed=0)
    assert len(seen) == 2 + 7


@pytest.mark.parametrize(
    "change, message",
    [
        ({"length": TRAINED}, "length must be above the trained one, 256, got 256"),
        ({"length": 9000}, "the text to fit on must have at least 18001 tokens, two windows of 9000, got 8000"),
        ({"length": 1024, "holdout": TOKENS[2000:]}, "holdout must be other text .* pieces of 64 tokens stand in both"),
        ({"length": 1024, "evaluations": 0}, "evaluations must be"),
        ({"length": 1024, "tokens": [1, 2]}, "the text to fit on must be tokens"),
    ],
)
def test_bad_input(change, message, model):
    tokens = change.pop("tokens", None) or (TOKENS[:8000] if "test" in change else TOKENS)
    with pytest.raises(ValueError, match=message):
        fit(model, tokens, **change)


def test_models_whose_rotation_cannot_be_given(model):
    from integrations.models import causal

    for other, message in (
        (torch.nn.Linear(2, 2), "model must be a transformers model with a config"),
        (causal("gemma3"), "model must have one rotation for all its layers to be fitted, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            GivenTables(other)
    model.lm_head.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="the loss of the model must be a number, got nan"):
        fit(model, TOKENS, length=1024, evaluations=5)


def test_the_commands(place, tmp_path, phasor):
    code, out, err = phasor(
        "fit", place, "--text", TEXT, "--length", "512", "--evaluations", "9", "--out", tmp_path / "c.json"
    )
    assert code in (0, 1) and not err and "scheme" in out and f"wrote {tmp_path / 'c.json'}: " in out
    kind = json.loads((tmp_path / "c.json").read_text())["rope_scaling"]["rope_type"]
    assert kind == ("llama3" if code else "longrope")
    code, _, err = phasor("fit", place, "--text", TEXT, "--length", "100")
    assert code == 2 and err.count("\n") == 1 and "length must be above the trained one, 256, got 100" in err


@pytest.mark.slow
def test_two_processes_print_what_one_prints(place, tmp_path):
    """To the byte: each has its share of the windows, and their sums are added in one order."""
    words = ["-m", "phasor", "fit", str(place), "--text", str(TEXT), "--length", "512", "--evaluations", "8", "--json"]
    env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    one, two = (limited.run([*launcher, *words], env=env).stdout for launcher in ([sys.executable], torchrun))
    assert one == two and json.loads(one)["tried"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "high_base"])
def test_it_betters_every_formula(name, tmp_path):
    """At four times the length, on the half of the text that was not searched on: by 0.05 nats a token or more."""
    changes = {"rope_theta": 500_000.0} if name == "high_base" else {}
    found = fit_folder(folder(name, changes, tmp_path / "m"), TEXT, length=1024)
    print(f"\n{name}\n{found}")
    assert found.gain >= 0.05
