"""A type that no row knows: built small from its config, observed, and expanded to all layers of the real model.

What rows say of types that they know is the truth here: it was compared with transformers' own tables.
"""

import json

import pytest

import phasor
from phasor.configs import NoRotary, Refused
from phasor.models.reading.observed import read_by_observing

pytest.importorskip("transformers")

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 12}
CONFIGS = {
    "llama": {**SIZES, "rope_parameters": LLAMA3, "max_position_embeddings": 131072},
    "qwen3": {**SIZES, "head_dim": 128, "rope_theta": 1000000.0, "max_position_embeddings": 40960},
    "smollm3": {**SIZES, "no_rope_layer_interval": 4},
    "glm4": {**SIZES, "head_dim": 128, "partial_rotary_factor": 0.5},
    "gemma3_text": {**SIZES, "head_dim": 128, "layer_types": ["sliding_attention", "full_attention"] * 6},
    "stablelm": {**SIZES, "partial_rotary_factor": 0.25},
}


def observed(name: str, **changes: object) -> tuple[phasor.ModelRotary, dict[str, str]]:
    found = read_by_observing(name, {"model_type": name, **CONFIGS[name], **changes}, "")
    assert found is not None
    return found[0], found[1].sources


LATER = ("llama", "glm4", "stablelm")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LATER)) for n in CONFIGS])
def test_it_is_read_as_its_row_reads_it(name):
    row = phasor.read_config({"model_type": name, **CONFIGS[name]})
    seen, _ = observed(name)
    assert seen.layers == row.layers
    assert (seen.num_heads, seen.num_kv_heads, seen.max_position) == (row.num_heads, row.num_kv_heads, row.max_position)
    assert (seen.targets, seen.own_angles) == (row.targets, row.own_angles)


def test_it_says_that_it_was_observed():
    seen, sources = observed("llama")
    assert sources["model_type"].startswith("no row: observed on a small model that transformers")
    assert sources["rope_parameters.rope_theta"] == "read by the code of llama, and observed"
    assert not any("explains" in note for note in seen.notes)


def test_a_key_that_no_code_reads_has_no_effect_and_is_said_to():
    _, sources = observed("llama", rope_temperature=3.0)
    assert sources["rope_temperature"] == "no effect: the code of llama never reads it"


def test_a_key_one_letter_off_is_refused():
    with pytest.raises(Refused, match=r"rope_paramters is .* does not read it; did you mean rope_parameters\?"):
        observed("llama", rope_paramters=2.0)


def test_what_does_not_rotate_is_said_to():
    with pytest.raises(NoRotary, match="gpt2 rotates nothing in its attention, seen on a small model of transformers"):
        read_by_observing("gpt2", {"model_type": "gpt2"}, "")


def test_a_type_that_transformers_does_not_know_is_left_to_others():
    assert read_by_observing("willow", {"model_type": "willow"}, "") is None


def test_no_code_of_the_folder_is_run(tmp_path):
    """Not even where the config asks for it: the class is that of the installed transformers."""
    evil = "raise SystemExit('code of the folder was run')"
    (tmp_path / "modeling_evil.py").write_text(evil)
    auto_map = {"AutoConfig": "modeling_evil.Evil", "AutoModel": "modeling_evil.Evil"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **CONFIGS["llama"], "auto_map": auto_map}))
    data = json.loads((tmp_path / "config.json").read_text())
    found = read_by_observing("llama", data, "")
    assert found is not None
    assert found[0].layers == phasor.read_config(tmp_path).layers
