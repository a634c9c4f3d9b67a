"""The zoo of tiny models: small, whole, with every kind of layer of the default config."""

import pytest

pytest.importorskip("transformers")

from .shrink import shrink
from .tiny import outputs, tiny_config, tiny_inputs, tiny_model
from .walk import default_config


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "deepseek_v3", "qwen2_vl", "qwen2_vl_vision", "mimi"])
def test_tiny_models_run_and_are_small(name: str) -> None:
    model = tiny_model(name)
    found = outputs(model, tiny_inputs(model))
    assert found and all(x.isfinite().all() and x.std() > 0 for x in found if x.numel() > 1)
    assert sum(p.numel() for p in model.parameters()) < 30e6


@pytest.mark.parametrize("name", ["gemma3_text", "llama4_text", "smollm3", "deepseek_v4", "qwen3_5_text"])
def test_every_kind_of_layer_stays(name: str) -> None:
    full, small = default_config(name), tiny_config(name)
    for key, value in full.to_dict().items():
        if isinstance(value, list) and len(value) == full.num_hidden_layers:
            assert {repr(v) for v in value} == {repr(v) for v in small.to_dict()[key]}, key


def test_widths_of_heads_and_rope_parameters_stay() -> None:
    full = default_config("qwen3_5_text").to_dict()
    small = shrink(full)
    for key in ("head_dim", "rope_parameters", "max_position_embeddings"):
        assert small[key] == full[key]
    assert (small["num_attention_heads"], small["num_key_value_heads"], small["vocab_size"]) == (2, 1, 128)
