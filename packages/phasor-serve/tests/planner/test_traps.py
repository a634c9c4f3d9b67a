"""Each trap is found where it is, and none in clean configs."""

import json
from pathlib import Path
from typing import Any

import pytest

from engines.cases import YARN, configs
from phasor_serve.engines import ENGINES, read_as
from phasor_serve.planner import draft_traps, file_traps, runtime_traps, traps

QWEN, MOE, VL = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-VL-32B-Instruct"
THETA = {**YARN, "rope_theta": 1000000.0}
EXAONE, OSS, LLAMA = "LGAI-EXAONE/EXAONE-4.0-32B", "openai/gpt-oss-120b", "meta-llama/Llama-3.1-8B"
LONG, GEMMA = "LongRoPE of Phi-3, shortened", "google/gemma-3-27b-it"


def hf(**override: Any) -> dict[str, Any]:
    return {"--hf-overrides": override}


SHOWN: list[tuple[int, str, dict[str, Any], str, dict[str, Any]]] = [
    # number, config, its changes, engine, flags
    (1, MOE, {}, "vllm", hf(rope_parameters=YARN)),
    (1, QWEN, {"rope_theta": None, "rope_parameters": YARN}, "", {}),
    (1, VL, {}, "sglang", {"--json-model-override-args": {"text_config": {"rope_parameters": YARN}}}),
    (2, VL, {}, "vllm", hf(rope_parameters=THETA)),
    (3, QWEN, {"rope_scaling": YARN}, "", {}),
    (4, QWEN, {}, "vllm", hf(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                             max_position_embeddings=163840)),
    (5, QWEN, {}, "llama.cpp", {"--rope-scaling": "yarn", "--rope-scale": 4.0, "--yarn-attn-factor": 40.0}),
    (6, QWEN, {"rope_scaling": {**YARN, "mscale": 0.707}}, "", {}),
    (7, EXAONE, {}, "vllm", hf(rope_parameters=THETA)),
    (8, QWEN, {}, "llama.cpp", {"-c": 131072}),
    (8, QWEN, {}, "tensorrt-llm", {"--max_seq_len": 131072}),
    (9, OSS, {}, "llama.cpp", {"--rope-scale": 64.0}),
    (9, GEMMA, {}, "vllm", hf(text_config={"rope_parameters":
     {"sliding_attention": {"rope_type": "linear", "factor": 8.0}}})),
    (10, "mistralai/Mixtral-8x7B-v0.1", {}, "sglang", {"--json-model-override-args": {"rope_parameters": YARN}}),
    (10, "google/gemma-4-26B-A4B", {}, "vllm",
     hf(text_config={"rope_parameters": {"full_attention": {"factor": 4.0}}})),
    (10, QWEN, {"rope_scaling": YARN}, "tensorrt-llm", {}),
    (10, QWEN, {"rope_scaling": YARN}, "exllamav3", {}),
    (10, "moonshotai/Kimi-K2-Instruct", {}, "llama.cpp", {}),
    (12, LONG, {}, "vllm", {"--max-model-len": 8192}),
    (12, LONG, {}, "llama.cpp", {"-c": 8192}),
    (13, QWEN, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32}}, "", {}),
    (14, "microsoft/phi-2", {}, "vllm", hf(rope_parameters={**THETA, "original_max_position_embeddings": 2048})),
    (18, LLAMA, {}, "llama.cpp", {"--rope-scale": 2.0}),
    (19, "Qwen/Qwen2-VL-2B-Instruct", {}, "vllm", hf(text_config={"rope_parameters": YARN})),
    (20, "gemma3 with a flat dictionary", {"model_type": "gemma3_text", "rope_parameters": {"rope_type": "default",
     "rope_theta": 1e6}}, "", {}),
    (20, "nested truncate", {"model_type": "olmo3", "num_hidden_layers": 4, "rope_parameters": {"full_attention": {
     **THETA, "truncate": False}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}, "", {}),
    (20, "a kind left out", {"model_type": "gemma3_text", "num_hidden_layers": 6, "rope_parameters": {
     "full_attention": {"rope_type": "default", "rope_theta": 1e6}}}, "", {}),
]  # fmt: skip
CLEAN = [
    "Qwen__Qwen3-8B", "Qwen__Qwen3-32B", "Qwen__Qwen3-30B-A3B", "Qwen__Qwen3-235B-A22B-FP8",
    "Qwen__Qwen2.5-7B-Instruct", "Qwen__Qwen2-1.5B-Instruct", "Qwen__Qwen1.5-4B-Chat", "Qwen__Qwen3.5-27B",
    "Qwen__Qwen3-VL-32B-Instruct", "meta-llama__Llama-2-7b-chat-hf", "meta-llama__Meta-Llama-3-8B",
    "meta-llama__Meta-Llama-3.1-8B", "meta-llama__Llama-3.2-3B-Instruct",
    "meta-llama__Llama-4-Maverick-17B-128E-Instruct-FP8", "mistralai__Mixtral-8x7B-v0.1",
    "mistralai__Mixtral-8x22B-v0.1", "google__gemma-2-9b-it", "google__gemma-3-4b-it", "google__gemma-3-27b-it",
    "google__gemma-4-26B-A4B", "openai__gpt-oss-120b", "deepseek-ai__DeepSeek-V3", "deepseek-ai__DeepSeek-R1",
    "moonshotai__Kimi-K2-Instruct", "microsoft__phi-2", "microsoft__phi-4", "LGAI-EXAONE__EXAONE-4.0-32B",
    "codellama__CodeLlama-7b-hf", "TinyLlama__TinyLlama-1.1B-Chat-v1.0", "zai-org__GLM-5",
]  # fmt: skip

# Not the config's: what an engine drops of it.
FAULTS = {
    "openai__gpt-oss-120b": {"llama.cpp": [10], "mlx-lm": [10], "tensorrt-llm": [10]},
    "moonshotai__Kimi-K2-Instruct": {"llama.cpp": [10]},
}


@pytest.mark.parametrize("number, name, changes, engine, flags", SHOWN)
def test_a_trap_is_found(number: int, name: str, changes: dict[str, Any], engine: str, flags: dict[str, Any]) -> None:
    config = {**configs().get(name, {}), **changes}
    config = {key: value for key, value in config.items() if value is not None or key not in changes}
    assert number in [trap.number for trap in traps(config, engine, flags)]


@pytest.mark.parametrize("name", CLEAN)
def test_clean_configs_have_none(shared_data: Path, name: str) -> None:
    data = json.loads((shared_data / f"configs/full/{name}.json").read_text())
    found = {engine: numbers for engine in ("", *ENGINES) if (numbers := [trap.number for trap in traps(data, engine)])}
    assert found == FAULTS.get(name, {})


def test_there_are_thirty_clean_configs() -> None:
    assert len(set(CLEAN)) == 30


def test_a_draft_model_that_was_left_behind() -> None:
    target = read_as(configs()[QWEN], "vllm", hf(rope_parameters=THETA, max_position_embeddings=131072))
    draft = {**configs()[QWEN], "num_hidden_layers": 1}
    short, plain = draft_traps(target, draft)
    assert (short.number, short.text) == (15, "the draft model declares 40,960 positions, the target now takes 131,072")
    assert (plain.number, plain.text) == (15, "the target has yarn scaling, its draft none")
    assert draft_traps(read_as(configs()[QWEN], "vllm"), draft) == []


def test_a_file_without_its_scaling(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    config = {**configs()[QWEN], "max_position_embeddings": 131072, "rope_scaling": YARN}
    for name, keys, base, found in (
        ("whole", True, 1e6, []), ("bare", False, 1e6, [16, 16, 16]), ("of another base", True, 1e4, [16]),
    ):  # fmt: skip
        writer = gguf.GGUFWriter(tmp_path / name, "qwen3")
        writer.add_rope_freq_base(base)
        if keys:
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(4.0)
            writer.add_rope_scaling_orig_ctx_len(32768)
        for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
            write()
        writer.close()
        assert [trap.number for trap in file_traps(config, tmp_path / name)] == found


def test_two_runtimes_that_part() -> None:
    config = configs()[OSS]
    assert [t.number for t in runtime_traps(read_as(config, "transformers"), read_as(config, "llama.cpp"))] == [17]
    assert runtime_traps(read_as(config, "transformers"), read_as(config, "vllm")) == []


def test_a_trap_is_a_finding_with_a_way_out() -> None:
    (trap,) = traps(configs()[LLAMA], "llama.cpp", {"--rope-scale": 2.0})[-1:]
    assert (trap.verdict, trap.cause, trap.way_out) == CAUSE_OF_18
    assert (
        str(trap)
        == "--rope-scale comes on top of the file's Llama 3 factors [trap 18; ggml-cpu/ops.cpp; tests/engines]"
    )
    assert trap.to_dict()["reason"] == trap.text


CAUSE_OF_18 = ("wrong", "flags on top of a file's factors", "leave the scaling flags out")


@pytest.mark.parametrize(
    "stated, found",
    [({"mscale": 0.7}, True), ({"mscale": 1.0}, False), ({"mscale": 0.7, "mscale_all_dim": 0.7}, False),
     ({"mscale_all_dim": 0.7}, False)],
)  # fmt: skip
def test_one_mscale_without_the_other(stated: dict[str, float], found: bool) -> None:
    config = {**configs()[QWEN], "rope_scaling": {**YARN, **stated}}
    assert (6 in [trap.number for trap in traps(config)]) == found
