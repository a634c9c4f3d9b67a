"""`phasor plan`: its exit code says whether every engine that was asked for has settings."""

import json

import pytest

GPT_NEOX = {
    "model_type": "gpt_neox", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4, "rotary_pct": 0.25,
    "max_position_embeddings": 8192, "rope_theta": 10_000.0,
}  # fmt: skip


@pytest.mark.parametrize("engines, code", [(["vllm"], 0), (["llama.cpp"], 1), (["vllm", "llama.cpp"], 1)])
def test_one_engine_without_settings_is_enough_for_a_bad_end(engines, code, tmp_path, phasor):
    """How llama.cpp converts this type is not shown, so nothing is said; vLLM takes YaRN from the config."""
    (tmp_path / "config.json").write_text(json.dumps(GPT_NEOX))
    asked = [word for engine in engines for word in ("--engine", engine)]
    ended, out, _ = phasor("plan", tmp_path / "config.json", "--length", 32_768, *asked)
    assert ended == code and all(engine in out for engine in engines)
