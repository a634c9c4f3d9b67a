"""Encoders and decoders: each half is seen in every way of calling, and a fault shows in the half that has it."""

from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
import transformers
from transformers.models.t5gemma import modeling_t5gemma

from conformance.given import build, inputs_for
from conformance.walk import quiet
from phasor import diagnose, testing

SPEECH, MERGED = "moonshine", "t5gemma2"
HALF = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "query_pre_attn_scalar": 16,
    "sliding_window": 8, "initializer_range": 0.2,
}  # fmt: skip
OF_DECODER = ("q and k through a cache", "q and k padded on the left")


def made(model_type: str) -> Any:
    with quiet():
        return build(model_type)


def text_to_text() -> Any:
    torch.manual_seed(0)
    config = transformers.T5GemmaConfig(encoder=HALF, decoder=HALF, vocab_size=64, attn_implementation="eager")
    return transformers.T5GemmaModel(config).eval()


def padded(found: Any) -> dict[str, str]:
    return {row.where: row.verdict for row in found.findings if row.what == "q and k padded on the left"}


def halves(found: Any) -> set[str]:
    """Those that a fault shows in."""
    return {row.where.partition(".")[0] for row in found.wrong}


def test_both_halves_of_a_sound_model() -> None:
    model = text_to_text()
    found = diagnose(model)
    assert found.sound and padded(found) == {"": "right", "encoder": "right"}, str(found)
    assert {row.verdict for row in found.findings if row.where == "" and row.what in OF_DECODER} == {"right"}
    assert all(row.verdict != "not shown" for row in testing.quick_check(model).findings)
    testing.assert_cache_consistent(model)


@pytest.mark.parametrize("half, layer", [("decoder", "T5GemmaDecoderLayer"), ("encoder", "T5GemmaEncoderLayer")])
def test_a_fault_shows_in_the_half_that_has_it(half: str, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, own = text_to_text(), modeling_t5gemma.apply_rotary_pos_emb
    cls = getattr(modeling_t5gemma, layer)
    forward = cls.forward

    def q_only(q: Any, k: Any, *tables: Any, **more: Any) -> Any:
        return own(q, k, *tables, **more)[0], k

    def inside(self: Any, *args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as changed:
            changed.setattr(modeling_t5gemma, "apply_rotary_pos_emb", q_only)
            return forward(self, *args, **kwargs)

    monkeypatch.setattr(cls, "forward", inside)
    assert halves(diagnose(model)) == {half}
    if half == "decoder":  # whose text is moved
        with pytest.raises(AssertionError, match="q only"):
            testing.quick_check(model)


def test_a_fault_in_some_calls_of_an_encoder_shows_there(monkeypatch: pytest.MonkeyPatch) -> None:
    model = text_to_text()
    tables = model.encoder.rotary_emb.forward

    def twice_as_far(x: Any, position_ids: Any) -> Any:
        return tables(x, position_ids + (len(x) > 2) * position_ids)

    monkeypatch.setattr(model.encoder.rotary_emb, "forward", twice_as_far)
    found = diagnose(model)
    assert halves(found) == {"encoder"}, str(found)


def test_a_decoder_of_speech_runs_beside_one_result_of_its_encoder() -> None:
    model = made(SPEECH)
    with quiet():
        inputs = inputs_for(SPEECH, model)
    assert padded(diagnose(model, inputs)) == {"": "right"}
    untold = next(row for row in diagnose(model).findings if row.what == "q and k in one call")
    assert untold.verdict == "not shown" and untold.reason.endswith("it takes more than tokens; give inputs")


@pytest.mark.slow
def test_queries_that_turn_beside_keys_that_do_not_are_meant_to() -> None:
    found = diagnose(made(MERGED))
    assert found.wrong == () and padded(found) == {"": "right", "encoder": "right"}, str(found)
