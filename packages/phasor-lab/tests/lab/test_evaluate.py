import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from phasor.rotary.scaling import Linear, LongRoPE
from phasor_lab.fitting.objective import WINDOWS
from phasor_lab.fitting.schemes import SCHEMES, divided
from phasor_lab.lab import Decoder, ModelConfig, RunConfig, evaluate, extend
from phasor_lab.lab.evaluate import check_budget, token_losses
from phasor_lab.lab.fitted import fitted
from phasor_lab.running.windows import windows_of


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
    torch.testing.assert_close(ours, torch.tensor(naive, dtype=torch.float64), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("length", [8, 12])
def test_sliding_windows_score_the_same_bytes_at_every_length(model, text, length):
    data, stride, longest, tokens = text.held_out, 4, 12, 16
    first = longest - stride  # the first scored target is the byte after this one
    naive = [
        [loss_of(model, data[end - length : end - stride + i + 1], data[end - stride + i + 1]) for i in range(stride)]
        for end in range(first + stride, first + stride + tokens, stride)
    ]
    ours = token_losses(model, data, length, tokens, stride=stride, longest=longest)
    torch.testing.assert_close(ours, torch.tensor(naive, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_a_length_that_does_not_divide_the_others_scores_the_same_bytes(model, config, text):
    held_out = text.held_out[:65]  # one window of the longest length and its last target: nothing lies behind it
    short = dataclasses.replace(text, held_out=held_out)
    whole, odd = (evaluate(model, config, short, times=(t, 4), tokens=64)["by_length"][0] for t in (1, 1.5))
    assert (whole["length"], odd["length"]) == (16, 24)
    assert len(whole["blocks"]) == len(odd["blocks"]) == 1
    assert odd["blocks"] == pytest.approx([odd["loss"]], rel=1e-12)
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
    assert result["by_position"]["loss"] == pytest.approx([math.log(256)] * 64, rel=1e-6)
    assert result["protocol"].startswith("The same 256 held-out bytes")


def test_a_learned_table_has_no_number_beyond_its_end(text):
    config = RunConfig(model=ModelConfig(encoding="learned", dim=16, heads=2, length=16), source=text.sha256)
    result = evaluate(Decoder(config.model).eval(), config, text, times=(1, 2), tokens=64)
    inside, beyond = result["by_length"]
    assert inside["loss"] > 0
    assert beyond["loss"] is None
    assert "learned table of 16 positions" in beyond["reason"]
    assert result["by_position"]["length"] == 16


def test_loss_by_position_is_of_whole_windows(text):
    """The longest length with a number need not divide what is scored: of 24 bytes one window of 16."""
    config = RunConfig(model=ModelConfig(encoding="learned", dim=16, heads=2, length=16), source=text.sha256)
    model = Decoder(config.model).eval()
    result = evaluate(model, config, text, times=(1, 1.5), tokens=24)
    expected = token_losses(model, text.held_out, 16, 16)[0].tolist()
    assert result["by_position"] == {"length": 16, "position": [*range(16)], "loss": pytest.approx(expected, rel=1e-6)}


def test_the_budget_is_whole_windows_inside_the_held_out_text(text):
    assert len(text.held_out) > 1050
    assert check_budget(text, 100, 1050) == 1000
    assert check_budget(text, 100, 10) == 100
    assert check_budget(text, 100, 10**9) == (len(text.held_out) - 1) // 100 * 100
    assert check_budget(text, 100, 10**9, stride=30) == (len(text.held_out) - 1 - 70) // 30 * 30
    with pytest.raises(ValueError, match=r"the held-out text .* must hold one window of 100000 bytes; give more text"):
        check_budget(text, 100_000, 10)
    with pytest.raises(ValueError, match=r"must hold one window of 100 bytes with a stride of at most that, got 101"):
        check_budget(text, 100, 10, stride=101)


@pytest.mark.parametrize(
    "task, questions", [("copy", [(16, None), (32, None)]), ("passkey", 5 * [(16, 0)] + 5 * [(32, 0)])]
)
def test_a_task_is_asked_at_every_length(task, questions):
    config = RunConfig(model=ModelConfig(dim=16, heads=2, length=16), task=task)
    result = evaluate(Decoder(config.model).eval(), config, times=(1, 2))
    assert [row["length"] for row in result["by_length"]] == [length for length, _ in questions]
    assert all(0 <= row["exact"] <= row["accuracy"] <= 1 for row in result["by_length"])


def test_extension_takes_each_scheme_at_its_own_length(model, config, text):
    result = extend(model, config, text, schemes=("none", "linear"), factors=(2, 4), tokens=64)
    spec = config.model.rotary_spec.replace(scaling=Linear(4.0))
    wanted = float(token_losses(model, text.held_out, 64, 64, rotary=spec).mean())
    (row,) = [r for r in result["table"] if (r["scheme"], r["factor"]) == ("linear", 4)]
    assert (row["length"], row["loss"]) == (64, wanted)
    assert {(r["scheme"], r["length"]) for r in result["curves"]} == {
        (s, n) for s in ("none", "linear") for n in (16, 32, 64)
    }
    for curve in result["curves"]:  # each at its own length, all by the largest factor
        rotary = spec if curve["scheme"] == "linear" else config.model.rotary_spec
        assert curve["loss"] == float(token_losses(model, text.held_out, curve["length"], 64, rotary=rotary).mean())
    plain = float(token_losses(model, text.held_out, 32, 64).mean())
    assert [r["loss"] for r in result["table"] if (r["scheme"], r["factor"]) == ("none", 2)] == [plain]


def test_the_searched_scheme_is_one_more_row(model, config, text):
    """It leaves windows of the trained length alone, and on the text of the search it is at least as good as all it
    began with, by the sum that is searched for."""
    result = extend(model, config, text, schemes=("none", "fitted"), factors=(2, 4), tokens=64)
    rows = {(r["scheme"], r["factor"]): r["loss"] for r in result["table"]}
    assert set(rows) == {("none", 2), ("none", 4), ("fitted", 2), ("fitted", 4)}
    inside = {r["scheme"]: r["loss"] for r in result["curves"] if r["length"] == 16}
    assert inside["fitted"] == inside["none"]
    spec, tokens = config.model.rotary_spec, text.train.long()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # untrained weights are too small for positions to matter

    def aim(divisors):
        """The loss at twice the length, and half of that at the trained one."""
        tried = spec.replace(scaling=LongRoPE(divisors, divisors, 16, 2.0, attention=1.0))
        with torch.no_grad():
            far, near = (
                F.cross_entropy(model(rows[:, :-1], rotary=tried).flatten(0, 1), rows[:, 1:].flatten())
                for rows in (windows_of("text", tokens, length, WINDOWS) for length in (32, 16))
            )
        return float(far + 0.5 * near)

    best = fitted(model, text.train, 2, steps=20)
    formulas = [divided(spec, name, 16, 32)[0].tolist() for name in SCHEMES]
    assert aim(best.long_factor) < min(aim(tuple(divisors)) for divisors in formulas)
    assert best.short_factor == (1.0,) * spec.pairs


def test_what_cannot_be_extended_or_evaluated_is_refused(model, config, text):
    alibi = RunConfig(model=ModelConfig(encoding="alibi"), source=text.sha256)
    with pytest.raises(ValueError, match="run must be of a rotary model to be extended, got alibi"):
        extend(Decoder(alibi.model), alibi, text)
    with pytest.raises(ValueError, match=r"scheme must be one of none, linear, .*, fitted, got 'longrope'"):
        extend(model, config, text, schemes=("longrope",))
    with pytest.raises(ValueError, match="factors must be integers of at least 1, got"):
        extend(model, config, text, factors=())
    copies = RunConfig(model=config.model, task="copy")
    with pytest.raises(ValueError, match="run must be of the task text to be extended, got copy"):
        extend(model, copies, text)
    with pytest.raises(ValueError, match="text must be given for the task 'text', got None"):
        evaluate(model, config)
    with pytest.raises(ValueError, match="times must be positive multiples of the training length, got"):
        evaluate(model, config, text, times=(0,))
