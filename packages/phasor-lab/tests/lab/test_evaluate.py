import dataclasses
import math

import pytest
import torch

from phasor.rotary.scaling import Linear
from phasor_lab.lab import Decoder, ModelConfig, RunConfig, evaluate, extend
from phasor_lab.lab.evaluate import check_budget, token_losses


@pytest.fixture
def model(config):
    return Decoder(config.model).eval()


def loss_of(model, window, target):
    """-log p of one byte after a window, from the definition."""
    logits = model(window[None].long())[0, -1].double().tolist()
    return math.log(sum(math.exp(x) for x in logits)) - logits[int(target)]


@torch.no_grad()
def test_tiled_windows_score_every_byte_with_what_its_window_has_before_it(model, text):
    data, length, tokens = text.held_out, 8, 24
    naive = [
        [loss_of(model, data[start : start + i + 1], data[start + i + 1]) for i in range(length)]
        for start in range(0, tokens, length)
    ]
    ours = token_losses(model, data, length, tokens)
    torch.testing.assert_close(ours, torch.tensor(naive, dtype=torch.float64).flatten(), rtol=1e-5, atol=1e-5)


def test_a_length_that_does_not_divide_the_others_scores_the_same_bytes(model, config, text):
    held_out = text.held_out[:65]  # one window of the longest length and its last target: nothing lies behind it
    short = dataclasses.replace(text, held_out=held_out)
    odd = evaluate(model, config, short, times=(1.5, 4), tokens=64)["by_length"][0]
    assert odd["length"] == 24
    naive = [
        loss_of(model, held_out[start : i + 1], held_out[i + 1])
        for start in range(0, 64, 24)
        for i in range(start, min(start + 24, 64))
    ]
    assert odd["loss"] == pytest.approx(sum(naive) / 64, rel=1e-5)


def test_a_model_that_knows_nothing_loses_log_256_everywhere(model, config, text):
    torch.nn.init.zeros_(model.embed_tokens.weight)
    result = evaluate(model, config, text, times=(1, 4), tokens=256)
    assert [row["length"] for row in result["by_length"]] == [16, 64]
    assert [row["loss"] for row in result["by_length"]] == pytest.approx([math.log(256)] * 2, rel=1e-6)
    assert result["protocol"].startswith("The same 256 held-out bytes")


def test_a_learned_table_has_no_number_beyond_its_end(text):
    config = RunConfig(model=ModelConfig(encoding="learned", dim=16, heads=2, length=16), source=text.sha256)
    result = evaluate(Decoder(config.model).eval(), config, text, times=(1, 2), tokens=64)
    inside, beyond = result["by_length"]
    assert inside["loss"] > 0
    assert beyond["loss"] is None
    assert "learned table of 16 positions" in beyond["reason"]


def test_the_budget_is_whole_windows_inside_the_held_out_text(text):
    assert len(text.held_out) > 1050
    assert check_budget(text, 100, 1050) == 1000
    assert check_budget(text, 100, 10) == 100
    assert check_budget(text, 100, 10**9) == (len(text.held_out) - 1) // 100 * 100
    with pytest.raises(ValueError, match=r"the held-out text .* must hold one window of 100000 bytes; give more text"):
        check_budget(text, 100_000, 10)


def test_extension_takes_each_scheme_at_its_own_length(model, config, text):
    result = extend(model, config, text, schemes=("none", "linear"), factors=(2, 4), tokens=64)
    spec = config.model.rotary_spec.replace(scaling=Linear(4.0))
    wanted = float(token_losses(model, text.held_out, 64, 64, rotary=spec).mean())
    (row,) = [r for r in result["table"] if (r["scheme"], r["factor"]) == ("linear", 4)]
    assert (row["length"], row["loss"]) == (64, wanted)
    plain = float(token_losses(model, text.held_out, 32, 64).mean())
    assert [r["loss"] for r in result["table"] if (r["scheme"], r["factor"]) == ("none", 2)] == [plain]


def test_what_cannot_be_extended_or_evaluated_is_refused(model, config, text):
    alibi = RunConfig(model=ModelConfig(encoding="alibi"), source=text.sha256)
    with pytest.raises(ValueError, match="run must be of a rotary model to be extended, got alibi"):
        extend(Decoder(alibi.model), alibi, text)
    with pytest.raises(ValueError, match=r"scheme must be one of none, linear, .*, llama3, got 'longrope'"):
        extend(model, config, text, schemes=("longrope",))
    with pytest.raises(ValueError, match="factors must be integers of at least 1, got"):
        extend(model, config, text, factors=())
    with pytest.raises(ValueError, match="times must be positive multiples of the training length, got"):
        evaluate(model, config, text, times=(0,))
