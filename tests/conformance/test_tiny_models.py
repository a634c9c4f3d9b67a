"""The zoo of tiny models: small, and they run; what stays in them: tests/eye/test_tiny_config.py."""

import pytest

pytest.importorskip("transformers")

from .tiny import outputs, tiny_inputs, tiny_model


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "deepseek_v3", "qwen2_vl", "qwen2_vl_vision", "mimi"])
def test_tiny_models_run_and_are_small(name: str) -> None:
    model = tiny_model(name)
    found = outputs(model, tiny_inputs(model))
    assert found and all(x.isfinite().all() and x.std() > 0 for x in found if x.numel() > 1)
    assert sum(p.numel() for p in model.parameters()) < 30e6
