"""LongRoPE's factor on cos and sin where a config states one: who takes it, and who takes the formula's instead."""

import pytest

from phasor_serve import planner

STATED, FORMULA = 1.0, (1 + 2 / 8) ** 0.5  # sqrt(1 + ln 4 / ln 256)
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1,
    "max_position_embeddings": 1024, "rope_theta": 10000.0,
}  # fmt: skip


def config(**stated):
    rope = {
        "rope_type": "longrope", "original_max_position_embeddings": 256, "factor": 4.0,
        "short_factor": [1.0] * 16, "long_factor": [1.0 + i / 8 for i in range(16)],
    }  # fmt: skip
    return {**CONFIG, "rope_scaling": {**rope, **stated}}


@pytest.mark.parametrize("engine, flag", [("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")])
def test_two_engines_take_it_under_names_of_their_own(engine, flag):
    """``get_rope`` of both passes long_mscale and short_mscale on, and attention_factor not."""
    plan = planner.plan(config(attention_factor=STATED), length=1024, engine=engine)
    assert plan.verdict == "right"
    rope = plan.settings.flags[flag]["rope_parameters"]
    assert rope["long_mscale"] == rope["short_mscale"] == STATED
    assert plan.reading.model.layers[0].attention_factor(1024) == STATED
    formula = planner.plan(config(), length=1024, engine=engine)
    assert flag not in formula.settings.flags
    assert formula.reading.model.layers[0].attention_factor(1024) == pytest.approx(FORMULA)


@pytest.mark.parametrize("engine", ["exllamav3", "mlx-lm", "tensorrt-llm"])
def test_others_take_the_formula_whatever_is_stated(engine):
    assert planner.plan(config(), length=1024, engine=engine).verdict == "right"
    refused = planner.plan(config(attention_factor=STATED), length=1024, engine=engine).refused
    assert f"the factor on cos and sin would be {FORMULA:.6g}, and 1 is wanted" in refused
