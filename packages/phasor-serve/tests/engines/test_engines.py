"""Every reader against what the engine's own code gave, and the engine's refusals against the reader's."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor_serve.engines import ENGINES, read_as

from .cases import RESULTS, YARN, changed, configs

ENGINE_OF = {"llama_cpp": "llama.cpp", "mlx_lm": "mlx-lm", "tensorrt_llm": "tensorrt-llm"}
RUNS = {ENGINE_OF.get(path.stem, path.stem): json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
CASES = [(engine, case) for engine, run in RUNS.items() for case in run["cases"]]


def called(engine: str, case: dict[str, Any]) -> str:
    return f"{engine} {case['config']} {json.dumps(case['flags'])} {json.dumps(case.get('changes', ''))}"[:150]


@pytest.mark.parametrize("engine, case", CASES, ids=[called(*case) for case in CASES])
def test_a_reader_agrees_with_the_engines_own_code(engine: str, case: dict[str, Any]) -> None:
    config = changed(case["config"], case.get("changes", {}))
    if "error" in case:
        refused = r"must be written as|is missing|no class for|is none that|does not load it|stops TensorRT|holds every"
        with pytest.raises(ValueError, match=refused):
            read_as(config, engine, case["flags"])
        return
    reading = read_as(config, engine, case["flags"])
    assert reading.version == RUNS[engine]["version"]
    assert "length" in case or engine == "tensorrt-llm"  # whose longest length was only read
    assert reading.length == case.get("length", reading.length)
    for index, theirs in case["layers"].items():
        spec = reading.model.layers[int(index)]
        if theirs is None or theirs["inv_freq"] is None:
            assert spec is None
        if spec is None:  # some engines make tables that such a layer never uses
            continue
        seq_len = reading.seq_len if reading.seq_len is not None else reading.length
        ours = spec.inv_freq(seq_len)
        torch.testing.assert_close(ours, torch.tensor(theirs["inv_freq"], dtype=torch.float64), rtol=3e-6, atol=1e-12)
        assert spec.attention_factor(seq_len) == pytest.approx(theirs["factor"], rel=1e-6)
        if "softmax" in theirs:
            assert reading.model.softmax_factor == pytest.approx(theirs["softmax"], rel=1e-6)


def test_a_rule_names_the_file_that_it_was_read_in() -> None:
    for engine, case in CASES:
        if "error" not in case:
            config = changed(case["config"], case.get("changes", {}))
            for rule in read_as(config, engine, case["flags"]).rules:
                assert re.match(r"[\w.-]+/\S+|\S+\.(py|cpp)\b", rule.source), rule


def test_sglang_takes_one_for_a_factor_that_is_missing() -> None:
    """As `_get_rope_param` of its factory does."""
    flags = {"--json-model-override-args": {"rope_scaling": {"rope_type": "dynamic"}}}
    reading = read_as(configs()["Qwen/Qwen2.5-7B-Instruct"], "sglang", flags)
    (rule,) = (rule for rule in reading.rules if "missing" in rule.text)
    assert rule.text == "factor missing: 1 and the declared length are taken, with a warning"


def test_every_engine_was_run() -> None:
    assert {*RUNS, "transformers"} == set(ENGINES)  # transformers is run live: tests/planner/test_table.py
    assert all((Path(__file__).parent / f"run_{re.sub('[.-]', '_', engine)}.py").is_file() for engine in RUNS)


def test_every_case_says_something() -> None:
    assert [case for _, case in CASES if not ("error" in case or any(case["layers"].values()))] == []


# Of the sources of rules: those whose code was only read. All others were run; docs/planner.md has the table.
ONLY_READ = {
    "exllamav3": {"exllamav3/cache/cache.py: Cache"},
    "llama.cpp": {"llama.cpp conversion/base.py: TextModel.set_gguf_parameters", "src/models/deepseek2.cpp",
                  "tools/server/server-context.cpp"},
    "mlx-lm": {"mlx_lm/generate.py", "mlx_lm/models/deepseek_v3.py"},
    "sglang": {"sglang/srt/models/deepseek_common/utils.py: compute_mla_mscale_scaling",
               "sglang/srt/models/deepseek_v2.py"},
    "tensorrt-llm": {"tensorrt_llm/_torch/models", "tensorrt_llm/_torch/modules/attention.py: MLA"},
    "vllm": {"vllm/model_executor/models/deepseek_v2.py", "vllm/model_executor/models/registry.py"},
}  # fmt: skip


@pytest.mark.parametrize("engine", list(RUNS))
def test_a_rule_says_whether_the_engines_code_was_run(engine: str) -> None:
    rules = set()
    for case in (case for name, case in CASES if name == engine and "error" not in case):
        config = changed(case["config"], case.get("changes", {}))
        rules |= set(read_as(config, engine, case["flags"]).rules)
    assert {rule.source for rule in rules if not rule.run} == ONLY_READ[engine]
    assert not {rule.source for rule in rules if rule.run} & ONLY_READ[engine]
    assert all(rule.describe().endswith("; read, not run]") != rule.run for rule in rules)


GLM = {"model_type": "glm4_moe", "num_hidden_layers": 2, "head_dim": 128, "partial_rotary_factor": 0.5,
       "rope_theta": 1000000.0, "max_position_embeddings": 131072}  # fmt: skip
VL = {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", "num_hidden_layers": 1, "head_dim": 128,
      "rope_theta": 5000000.0, "rope_scaling": {"mrope_section": [24, 20, 20], "rope_type": "default"}}}  # fmt: skip
YARN_64K = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 131072, "rope_theta": 1000000.0}


def test_vllm_rotates_half_of_glm_without_a_stated_share() -> None:
    """vllm 0.33.0, glm4_moe.py: ``config.rope_parameters.setdefault("partial_rotary_factor", 0.5)``."""
    for model_type in ("glm4_moe", "glm4"):
        reading = read_as({**GLM, "model_type": model_type}, "vllm", {"--hf-overrides": {"rope_parameters": YARN_64K}})
        assert {spec.rotary_dim for spec in reading.model.distinct} == {64}


def test_sglang_takes_the_base_of_qwen3_for_its_vision_model() -> None:
    """sglang 0.5.23, qwen3.py: Qwen3DecoderLayer, which Qwen3LLMModel is made of; 1000000 without rope_theta."""
    override = {"text_config": {"rope_parameters": {"rope_type": "default", "mrope_section": [24, 20, 20]}}}
    reading = read_as(VL, "sglang", {"--json-model-override-args": override})
    assert {spec.base for spec in reading.model.distinct} == {1_000_000.0}


def test_mlx_lm_stretches_a_dynamic_base_by_the_length_of_each_call() -> None:
    """mlx_lm 0.32.2, rope_utils.py: base * (factor * length / declared - (factor - 1)) ** (dims / (dims - 2))."""
    config = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1,
              "max_position_embeddings": 2048, "rope_scaling": {"type": "dynamic", "factor": 4.0}}  # fmt: skip
    reading = read_as(config, "mlx-lm")
    (spec,) = reading.model.distinct
    assert reading.seq_len is None
    for length in (100, 2048, 8192):
        base = 10_000.0 * (4.0 * max(length, 2048) / 2048 - 3.0) ** (64 / 62)
        expected = base ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)
        torch.testing.assert_close(spec.inv_freq(length), expected, rtol=1e-12, atol=0)
    assert any("each call" in rule.text for rule in reading.rules)


def test_sglang_reads_no_factor_of_gemma_4() -> None:
    """sglang 0.5.23, gemma4_causal.py passes rope_type, base and share to get_rope, and nothing else."""
    full = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25, "factor": 8.0}
    near = {"rope_type": "default", "rope_theta": 1e4}
    config = {"model_type": "gemma4_text", "num_hidden_layers": 6, "head_dim": 256, "global_head_dim": 512,
              "rope_parameters": {"full_attention": full, "sliding_attention": near}}  # fmt: skip
    reading = read_as(config, "sglang")
    (spec,) = (s for s in reading.model.distinct if s.head_dim == 512)
    expected = 1e6 ** -(torch.arange(0, 128, 2, dtype=torch.float64) / 512)
    torch.testing.assert_close(spec.inv_freq()[:64], expected, rtol=1e-12, atol=0)
    assert not spec.inv_freq()[64:].any()
    assert any("factor is not read" in rule.text for rule in reading.rules)


@pytest.mark.parametrize(
    ("name", "override", "says"),
    [
        ("Qwen/Qwen3-VL-32B-Instruct", {"text_config": {"rope_scaling": YARN}}, "must state rope_theta"),
        ("Qwen/Qwen3-VL-32B-Instruct", {"text_config": {"rope_parameters": {"rope_theta": 1e6}}}, "state rope_type"),
        ("Qwen/Qwen3-8B", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor in an override"),
        ("Qwen/Qwen3-8B", {"partial_rotary_factor": 0.5}, "partial_rotary_factor in an override"),
        ("google/gemma-3-27b-it", {"text_config": {"rope_parameters": YARN}}, "by kind of layer"),
    ],
)
def test_an_override_with_which_sglang_stops_is_refused(name: str, override: dict[str, Any], says: str) -> None:
    """transformers' setter of rope_scaling sets a base of None; get_rope raises without a type; shares are unread."""
    with pytest.raises(ValueError, match=says):
        read_as(configs()[name], "sglang", {"--json-model-override-args": override})


@pytest.mark.parametrize("stretch, length", [(2.0, 16_384), (4.0, 40_960), (8.0, 65_536)])
def test_llama_cpp_lengthens_a_file_with_yarn_only_for_another_stretch(stretch: float, length: int) -> None:
    """Lengths of the library itself, b11549, on a file that says YaRN by 4 over 8192 and a context of 40,960."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    config = {**configs()["Qwen/Qwen3-8B"], "rope_scaling": yarn}
    assert read_as(config, "llama.cpp", {"--rope-scale": stretch}).length == length


def test_vllm_rotates_the_share_that_an_override_states() -> None:
    """vllm 0.33.0, get_rope: int(head_size * partial_rotary_factor) of the dictionary, whatever the model."""
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    reading = read_as(configs()["Qwen/Qwen3-8B"], "vllm", {"--hf-overrides": {"rope_parameters": rope}})
    assert {spec.rotary_dim for spec in reading.model.distinct} == {32}


@pytest.mark.parametrize(
    ("name", "override", "said"),
    [
        ("deepseek-ai/DeepSeek-V3", {"partial_rotary_factor": 0.5}, "cuts the rotary part of latent attention"),
        ("Qwen/Qwen3-8B", {"rope_scaling": None}, "rope_scaling must be a dictionary, got null"),
        ("meta-llama/Llama-4-Maverick", {"text_config": {"rope_parameters": None}}, "vLLM loses the base"),
        ("microsoft/phi-2", {"rope_parameters": YARN, "partial_rotary_factor": 0.5}, "must stand inside rope_para"),
    ],
)
def test_overrides_of_vllm_that_no_reading_follows(name: str, override: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_as(configs()[name], "vllm", {"--hf-overrides": override})
