"""What a stretch costs on short prompts, against formulas of the models' papers and code."""

import math
from dataclasses import replace

import pytest

from phasor import ModelRotary, RotarySpec, read_config
from phasor.scaling import Linear, YaRN
from phasor_serve import plan
from phasor_serve.engines import read_as
from phasor_serve.planner.cost import costs
from phasor_serve.planner.proof import differences, in_one_line

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


def test_which_pairs_completed_a_turn():
    """inv_freq is 1, 0.1, 0.01, 0.001. At position 8 the first pair is 8 rad on: past a turn (6.28), not past 9.42."""
    model = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("a",), num_heads=1)
    assert [costs(model, model, trained, 100)[0].unturned for trained in (7, 8, 9)] == [4, 3, 3]


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
    fewer = replace(model, layers=(*rest, first.replace(rotary_dim=32)))
    (finding,) = differences(model, replace(reading, model=fewer), 1000)
    assert finding.reason == "32 pairs are wanted, 16 rotate"
    assert (finding.where, finding.difference.size) == ("layers 2", 16)


def test_pairs_that_leave_the_angles_of_training():
    """Channels 8, base 1e4: pairs 2 and 3 (0.01 and 0.001 rad a position) never turn fully in 100 positions."""
    spec = RotarySpec(head_dim=8)
    model = ModelRotary(model_type="toy", layers=(spec,), layer_types=("a",), num_heads=1)
    slowed = replace(model, layers=(spec.replace(scaling=Linear(4.0)),))
    for after, length, leaving in ((model, 100, 0), (model, 200, 2), (slowed, 200, 0), (slowed, 400, 2)):
        (cost,) = costs(model, after, 100, length)
        assert (cost.unturned, cost.leaving) == (2, leaving)
        assert (cost.changed, cost.layers) == (4 if after is slowed else 0, (0,))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "exllamav3", "mlx-lm", "tensorrt-llm"])
def test_the_ends_of_yarns_ramp_where_the_config_states_none(engine):
    """32 and 1 turns over the original length, as in the paper; DeepSeek, which every engine reads."""
    rope = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096}
    (spec,) = read_as({**DEEPSEEK, "rope_scaling": rope}, engine).model.distinct
    assert isinstance(spec.scaling, YaRN)
    assert (spec.scaling.beta_fast, spec.scaling.beta_slow) == (32.0, 1.0)
    assert (spec.scaling.factor, spec.scaling.original_max_position) == (40.0, 4096)


def test_the_scaling_that_a_model_has_is_stretched_and_not_replaced():
    rope = {"rope_type": "linear", "factor": 2.0}
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
              "max_position_embeddings": 4096, "rope_theta": 1e4, "rope_scaling": rope}  # fmt: skip
    for method in ("auto", "linear"):
        assert plan(config, length=8192, method=method).spec.scaling == Linear(4.0)
    with pytest.raises(ValueError, match="method 'yarn' would replace the linear scaling"):
        plan(config, length=8192, method="yarn")
    del config["rope_scaling"]
    assert plan(config, length=8192, method="linear").spec.scaling == Linear(2.0)
    assert isinstance(plan(config, length=8192).spec.scaling, YaRN)
    assert plan(config, length=8192, method="none").spec.scaling is None


@pytest.mark.parametrize(
    "rope, flags, length",
    [({"type": "linear", "factor": 2.0}, "", 8192), (None, "", 4096), (None, "--max_seq_len 9000", 4096),
     ({"type": "linear", "factor": 2.0}, "--max_seq_len 9000", 8192), (None, "--max_seq_len 1000", 1000),
     ({"type": "llama3", "factor": 8.0}, "", 4096)],
)  # fmt: skip
def test_the_longest_sequence_of_tensorrt_llm(rope, flags, length):
    """A factor lengthens the declared length, except those of Llama 3, YaRN and LongRoPE; a longer one is cut."""
    if rope and rope["type"] == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
              "max_position_embeddings": 4096, "rope_theta": 1e4, "rope_scaling": rope}  # fmt: skip
    assert read_as(config, "tensorrt-llm", flags).length == length


MISTRAL = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "rope_theta": 10000.0, "max_position_embeddings": 32768,
    "sliding_window": 4096,
}  # fmt: skip


def test_no_stretch_where_every_layer_has_a_window() -> None:
    """Mistral 7B 0.1: transformers and vLLM mask by sliding_window in every layer, so 4,095 is the longest distance."""
    for engine in ("transformers", "vllm"):
        made = plan(MISTRAL, length=65_536, engine=engine)
        assert (made.factor, made.spec.scaling) == (1.0, None)
        assert "every layer sees its last 4,096 tokens alone" in made.explain()
        assert [cost.leaving for cost in made.costs] == [0]
        turned = sum(4095 * 10_000 ** (-i / 64) < 2 * math.pi for i in range(64))
        assert [cost.unturned for cost in made.costs] == [turned]
        assert made.settings is not None and "rope_type" not in str(made.settings)
    with pytest.raises(ValueError, match="every layer sees its last 4,096 tokens"):
        plan(MISTRAL, length=65_536, method="yarn")
    assert plan(MISTRAL, length=65_536).kv_bytes().total == 32 * 4096 * 2048 * 2
    assert plan({**MISTRAL, "sliding_window": None}, length=65_536).factor == 8.0


@pytest.mark.parametrize(
    ("engine", "said"), [("mlx-lm", "does not apply sliding_window"), ("sglang", "whether sglang applies the window")]
)
def test_a_window_that_an_engine_does_not_keep_is_said(engine: str, said: str) -> None:
    made = plan(MISTRAL, length=65_536, engine=engine)
    assert made.factor == 8.0 and said in made.explain()
    assert [cost.leaving == cost.unturned for cost in made.costs] == [True]
    assert made.kv_bytes().total == 32 * 65_536 * 2048 * 2
    assert any("all tokens are counted" in note for note in made.kv_bytes().notes)
