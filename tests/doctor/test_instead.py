"""What is added to logits and to tokens where nothing rotates: faults have names, and healthy models none."""

import contextlib
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
import transformers

from phasor import diagnose
from phasor.eye.bias import LogitBias
from phasor.tools.doctor.biases import WITHIN, Known, deviation_of_bias

from .not_rotating import FAULTS, MODELS, SIZES, model_of


@pytest.mark.parametrize("name", MODELS)
def test_healthy_models_are_right(name: str) -> None:
    found = diagnose(model_of(name))
    assert not found.causes, str(found)
    right = [row.what for row in found.findings if row.verdict == "right"]
    assert any(what in ("bias on the logits", "positions added to the tokens") for what in right), str(found)
    assert any(what.endswith("padded on the right") for what in right), str(found)
    assert any("in training" in what for what in right), str(found)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name: str) -> None:
    of_model, cause, plant = FAULTS[name]
    model = model_of(of_model)
    with plant(model) or contextlib.nullcontext():
        found = diagnose(model)
    assert found.causes and found.causes[0] == cause, str(found)


def test_the_plain_code_of_falcon_adds_its_bias_twice() -> None:
    """In transformers 5.24 the mask of `FalconModel` holds the bias, and its eager attention adds it again."""
    config = transformers.FalconConfig(**SIZES, alibi=True, new_decoder_architecture=False)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    found = diagnose(transformers.FalconForCausalLM(config).eval())
    assert found.causes == ("slopes",)
    assert "are 0.1768" in found.wrong[0].reason and "must be 0.08839" in found.wrong[0].reason  # 2 * 2**-2 / sqrt(8)


def test_a_plain_implementation_that_is_wrong_itself_is_no_measure_of_the_chosen_one() -> None:
    found = diagnose(model_of("falcon"))
    (row,) = (row for row in found.findings if row.what == "eager = the chosen attention")
    assert found.sound and row.verdict == "not shown" and "plain implementation is wrong: the slopes" in row.reason


def test_half_precision_models_are_right() -> None:
    assert not diagnose(model_of("bloom").bfloat16()).wrong and not diagnose(model_of("gpt2").half()).wrong


def test_the_slopes_of_the_heads_that_are_wrong_are_told() -> None:
    _, _, plant = FAULTS["one head twice as steep"]
    model = model_of("bloom")
    plant(model)
    says = {row.reason for row in diagnose(model).wrong}
    assert says == {"the slopes of the heads are 0.03125, and must be 0.01562 (head 2)"}  # 2**-5 and 2**-6


def test_positions_that_a_table_does_not_say_are_not_called_right() -> None:
    """Sines of another base than the paper's: nothing says that they are those of the weights."""
    model = model_of("xlm")
    places = torch.arange(model.position_embeddings.weight.shape[0])[:, None] / 100.0 ** (torch.arange(0, 32, 2) / 32)
    model.position_embeddings.weight.data = torch.stack([places.sin(), places.cos()], -1).flatten(1).float()
    found = diagnose(model)
    assert found.verdict == "not shown" and found.missing[0].what == "positions added to the tokens", str(found)


def test_the_factor_of_a_looked_up_term_is_seen() -> None:
    """DeBERTa's is 1 over the root of 8 channels and 3 terms."""
    found = diagnose(model_of("deberta"))
    assert found.verdict == "right" and "bias on the logits, its factor" in [row.what for row in found.findings]
    model = model_of("deberta")
    for attention in (layer.attention.self for layer in model.encoder.layer):
        attention.query_proj.register_forward_hook(lambda module, args, result: 2 * result)
    assert "the contents' own products are multiplied by 0.4082" in str(diagnose(model))


def test_a_looked_up_term_whose_factor_is_not_seen_is_not_called_right() -> None:
    """Half of DeBERTa's relative term, by no single number: its rows are the same."""
    model = model_of("deberta")
    for attention in (layer.attention.self for layer in model.encoder.layer):
        own = attention.disentangled_attention_bias
        attention.disentangled_attention_bias = lambda *given, own=own: (
            own(*given) * torch.full_like(given[0][..., :1], 0.5)
        )
    found = diagnose(model)
    assert found.verdict == "not shown" and "bias on the logits, its factor" in [row.what for row in found.missing]


def test_padding_that_is_counted_is_said_where_that_is_the_models_own_way() -> None:
    row = next(row for row in diagnose(model_of("gpt2")).findings if row.what.endswith("padded on the left"))
    assert row.verdict == "not shown" and "give position_ids" in row.reason


def alibi(queries: int, keys: int, by: float = 1.0) -> LogitBias:
    """Two heads, in the form ``slope * key``, as BLOOM has it."""
    values = torch.tensor([0.25, 0.0625], dtype=torch.float64)[:, None, None] * by * torch.arange(keys)
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return LogitBias(values.expand(2, queries, keys), seen.expand(2, -1, -1))


def compared(known: Known, bias: LogitBias, queries: Any, keys: int) -> Any:
    at = torch.arange(keys)[None]
    return deviation_of_bias(known, bias, at[:, queries], at, torch.ones_like(at, dtype=torch.bool))


def test_a_bias_of_a_decoding_step_stands_beside_that_of_the_whole_text() -> None:
    known = Known(alibi(12, 12), WITHIN)
    assert compared(known, alibi(1, 9), slice(8, 9), 9) == ""
    assert compared(known, alibi(3, 9), slice(6, 9), 9) == ""
    found = compared(known, alibi(3, 9, by=1.5), slice(6, 9), 9)
    assert found.cause == "slopes" and found.says.startswith("the slopes of the heads are 0.375, 0.09375")


def test_distances_that_were_not_seen_are_not_called_right() -> None:
    at = torch.tensor([[0, 40]])
    why = deviation_of_bias(Known(alibi(4, 4), WITHIN), alibi(2, 2), at, at, torch.ones(1, 2, dtype=torch.bool))
    assert why == "nothing says what it must be there"
