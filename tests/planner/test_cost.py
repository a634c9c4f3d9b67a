"""What a stretch costs on short prompts, against formulas of the models' papers and code."""

import math
from dataclasses import replace

import pytest

from phasor import read_config
from phasor.serving.engines import read_as
from phasor.serving.planner.cost import costs
from phasor.serving.planner.proof import differences, in_one_line

DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 1, "num_attention_heads": 2, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "max_position_embeddings": 163_840, "rope_theta": 10_000.0,
}  # fmt: skip


def stretched(factor: float, **more: float):
    rope = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 4096, **more}
    return read_config({**DEEPSEEK, "max_position_embeddings": int(4096 * factor), "rope_scaling": rope})


def test_the_factor_on_the_softmax_is_part_of_the_proof():
    rope = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0}
    config = {**DEEPSEEK, "max_position_embeddings": 163_840, "rope_scaling": {**rope, "mscale_all_dim": 1.0}}
    for engine in ("transformers", "vllm", "sglang", "llama.cpp", "exllamav3", "mlx-lm", "tensorrt-llm"):
        reading = read_as(config, engine)
        assert differences(read_config(config), reading, 163_840) == []
        assert reading.model.softmax_factor == pytest.approx((0.1 * math.log(40) + 1) ** 2, rel=1e-9)
        other = replace(reading, model=replace(reading.model, softmax_factor=1.0))
        (finding,) = differences(reading.model, other, 163_840)
        assert finding.reason == "the factor on the softmax would be 1, and 1.87385 is wanted"


def test_the_factor_on_the_softmax_counts():
    """DeepSeek's code multiplies the softmax scale by (0.1 mscale_all_dim ln factor + 1)^2; cos and sin keep theirs."""
    before, after = (stretched(factor, mscale=1.0, mscale_all_dim=1.0) for factor in (40.0, 80.0))
    (cost,) = costs(before, after, 163_840, 327_680)
    assert cost.score == pytest.approx(((0.1 * math.log(80) + 1) / (0.1 * math.log(40) + 1)) ** 2, rel=1e-6)


def test_a_difference_names_layers_pair_and_values():
    """Which layers differ, in what, and by how much, in the words that a refusal shows."""
    model = read_config({**DEEPSEEK, "num_hidden_layers": 3})
    reading = read_as({**DEEPSEEK, "num_hidden_layers": 3}, "transformers")
    first, *rest = model.layers
    assert first is not None
    other = replace(reading, model=replace(model, layers=(first.replace(base=20_000.0), *rest)))
    (finding,) = differences(model, other, 1000)
    apart = finding.difference
    assert apart is not None
    assert (finding.where, finding.cause, finding.verdict, apart.pair) == ("layers 0", "frequencies", "wrong", 31)
    assert apart.got == pytest.approx(20_000.0 ** (-62 / 64), rel=1e-9)
    assert apart.expected == pytest.approx(10_000.0 ** (-62 / 64), rel=1e-9)
    assert finding.reason == "pair 31 would rotate 0.5109 times as fast as wanted"
    assert in_one_line(finding) == f"layers 0: {finding.reason}"
    (finding,) = differences(model, replace(reading, length=999), 1000)
    assert finding.reason == "transformers would take 999 positions, and 1,000 are wanted"
    assert differences(model, replace(reading, length=1000), 1000) == []
    narrow = replace(model, layers=(None, *rest))
    (finding,) = differences(narrow, replace(reading, model=model), 1000)
    assert finding.reason == "only one of both rotates"
