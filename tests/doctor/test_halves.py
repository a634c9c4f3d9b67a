"""Encoders and decoders: each half keeps the laws by itself, and a fault shows in the half that has it."""

from typing import Any

import pytest

pytest.importorskip("transformers")
from transformers.models.t5gemma import modeling_t5gemma

from conformance.given import build, inputs_for
from conformance.walk import quiet
from phasor import diagnose, testing

TEXT, SPEECH, MERGED = "t5gemma", "moonshine", "t5gemma2"
SHIFT = "shift of all positions"
OF_DECODER = ("cached = full", "chunked = full", "padded left = alone")


def made(model_type: str) -> Any:
    with quiet():
        return build(model_type)


def shifts(found: Any) -> dict[str, str]:
    return {row.where: "by design" if row.by_design else row.verdict for row in found.findings if row.what == SHIFT}


def test_both_halves_of_a_sound_model() -> None:
    model = made(TEXT)
    found = diagnose(model)
    assert found.sound and shifts(found) == {"": "right", "encoder": "right"}, str(found)
    assert {row.verdict for row in found.findings if row.where == "" and row.what in OF_DECODER} == {"right"}
    assert all(row.verdict != "not shown" for row in testing.quick_check(model).findings)
    testing.assert_cache_consistent(model)


def test_a_fault_shows_in_the_half_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, own = made(TEXT), modeling_t5gemma.apply_rotary_pos_emb

    def q_only(q: Any, k: Any, *tables: Any, **more: Any) -> Any:
        return own(q, k, *tables, **more)[0], k

    forward = modeling_t5gemma.T5GemmaDecoderLayer.forward

    def decoding(self: Any, *args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(modeling_t5gemma, "apply_rotary_pos_emb", q_only)
            return forward(self, *args, **kwargs)

    monkeypatch.setattr(modeling_t5gemma.T5GemmaDecoderLayer, "forward", decoding)
    assert shifts(diagnose(model)) == {"": "wrong", "encoder": "right"}
    with pytest.raises(AssertionError, match=f"not {SHIFT}"):
        testing.quick_check(model)


def test_a_decoder_of_speech_runs_beside_one_result_of_its_encoder() -> None:
    model = made(SPEECH)
    with quiet():
        inputs = inputs_for(SPEECH, model)
    assert shifts(diagnose(model, inputs)) == {"": "right"}
    untold = next(row for row in diagnose(model).findings if row.what == SHIFT)
    assert untold.verdict == "not shown" and untold.reason.endswith("it takes more than tokens; give inputs")


def test_queries_that_turn_beside_keys_that_do_not_are_meant_to() -> None:
    found = diagnose(made(MERGED))
    assert found.wrong == () and shifts(found) == {"": "by design", "encoder": "right"}, str(found)
