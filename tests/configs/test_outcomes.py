"""The oracle of the law of keys notices what it must: other readings, crashes, readers without an end."""

from typing import Any

import pytest

pytest.importorskip("transformers")

from computed import computed
from outcomes import STEPS, TooLong, judged, outcome

from conformance.conftest import INSTALLED, VERSION
from conformance.walk import quiet
from phasor import read_parts

pytestmark = pytest.mark.skipif(INSTALLED != VERSION, reason=f"the oracle is transformers {VERSION}")

TOY = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2}
MROPE = {**TOY, "model_type": "qwen2_vl_text", "num_key_value_heads": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4}
OTHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what phasor is given, what transformers is given
    "frequency": (TOY, {**TOY, "rope_theta": 10001.0}),
    "head_dim": (TOY, {**TOY, "head_dim": 64}),
    "frequencies, theirs": (
        {**TOY, "model_type": "phi", "partial_rotary_factor": 0.5},
        {**TOY, "model_type": "phi", "partial_rotary_factor": 0.25},
    ),
    "num_kv_heads": (TOY, {**TOY, "num_key_value_heads": 2}),
    "layers 2, theirs 3": (TOY, {**TOY, "num_hidden_layers": 3}),
    "attention factor": (
        {**TOY, "rope_parameters": YARN},
        {**TOY, "rope_parameters": {**YARN, "attention_factor": 1.0}},
    ),
    "tokens: frequencies": (
        {**TOY, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}},
        {**TOY, "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1e4}},
    ),
    "does not rotate for transformers": (
        {**TOY, "model_type": "smollm3", "no_rope_layers": [1, 1]},
        {**TOY, "model_type": "smollm3", "no_rope_layers": [1, 0]},
    ),
    "rotated q and k differ": (
        {**MROPE, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        {**MROPE, "rope_scaling": {"type": "mrope", "mrope_section": [24, 20, 20]}},
    ),
    "transformers rotates here": ({"model_type": "t5"}, TOY),
}  # fmt: skip


@pytest.mark.parametrize("words", OTHER)
def test_another_reading_is_noticed(words: str) -> None:
    mine, theirs = OTHER[words]
    with quiet():
        found = judged(mine, read_parts(mine), computed(theirs))
        assert found.kind == "DISAGREE" and words in found.why, found
        assert outcome(theirs).kind == "EQUAL"


def test_a_module_that_no_layer_uses_is_no_rotation() -> None:
    """BeamConfig makes its last layer full attention, and BeamModel gives such layers no cos and sin."""
    with quiet():
        assert outcome({"model_type": "beam", "num_hidden_layers": 1}).kind != "DISAGREE"
        assert outcome({"model_type": "beam", "num_hidden_layers": 2}).kind == "EQUAL"


def test_crashes_and_slow_readers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: Any) -> Any:
        return 1 / 0

    def refuses(data: Any) -> Any:
        raise ValueError("two\nlines")

    def counts(data: Any) -> Any:
        for _ in range(2 * STEPS):
            pass

    def hangs(data: Any) -> Any:
        raise TooLong  # as the clock does

    for reader, kind in ((fails, "CRASH"), (refuses, "CRASH"), (counts, "SLOW"), (hangs, "SLOW")):
        monkeypatch.setattr("outcomes.read_config", reader)
        assert outcome(TOY).kind == kind
    monkeypatch.undo()
    assert outcome(TOY).kind == "EQUAL"
