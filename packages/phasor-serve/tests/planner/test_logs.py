"""Bytes of keys and values against what engines printed in public logs, within 1 %."""

from pathlib import Path
from typing import Any

import pytest

from phasor_serve.engines import load_config
from phasor_serve.planner import memory
from phasor_serve.planner.kv import bits_of, stores

GIB, MIB = 2**30, 2**20
MISTRAL: dict[str, Any] = {  # 7B: the log states its base of 1e6
    "model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "max_position_embeddings": 32_768, "rope_theta": 1e6,
}  # fmt: skip
QWEN_CODER = "Qwen__Qwen3-30B-A3B"  # Qwen3-Coder-30B-A3B has its shapes
LLAMA = "meta-llama__Meta-Llama-3.1-8B"

PRINTED = [  # where, model, engine, tokens, devices, cache type, bytes
    ("vllm-project/vllm#10517: 1,952 blocks", LLAMA, "vllm", 1952 * 16, 1, "bfloat16", 3.81 * GIB),
    ("vllm-project/vllm#10517: 1,478 blocks", LLAMA, "vllm", 1478 * 16, 1, "bfloat16", 2.89 * GIB),
    ("vllm-project/vllm#34076: needed", QWEN_CODER, "vllm", 262_144, 1, "bfloat16", 24.0 * GIB),
    ("vllm-project/vllm#34076: longest", QWEN_CODER, "vllm", 34_736, 1, "bfloat16", 3.18 * GIB),
    ("alvarobartt/hf-mem#60", "openai__gpt-oss-120b", "vllm", 78_384, 1, "bfloat16", 5.38 * GIB),
    ("vllm-project/vllm#21348", "Qwen__Qwen3-235B-A22B-FP8", "sglang", 367_404, 4, "bfloat16", 2 * 8.23 * GIB),
    ("fedora-copr/logdetective#106: before", MISTRAL, "llama.cpp", 2_048, 1, "float16", 256 * MIB),
    ("fedora-copr/logdetective#106: after", MISTRAL, "llama.cpp", 32_768, 1, "float16", 4096 * MIB),
    ("ikawrakow/ik_llama.cpp#235", "deepseek-ai__DeepSeek-R1", "llama.cpp", 32_768, 1, "float16", 2196 * MIB),
    ("huggingface/blog#2345", LLAMA, "transformers", 128_000, 1, "float16", 15.62 * GIB),
    ("huggingface/blog#2345", "meta-llama__Meta-Llama-3.1-70B", "transformers", 128_000, 1, "float16", 39.06 * GIB),
]  # fmt: skip


@pytest.mark.parametrize("where, model, engine, tokens, devices, dtype, printed", PRINTED)
def test_what_was_printed(
    where: str, model: Any, engine: str, tokens: int, devices: int, dtype: str, printed: float, shared_data: Path
) -> None:
    seen = load_config(model if isinstance(model, dict) else shared_data / f"configs/full/{model}.json")
    assert memory(seen, engine, tokens, dtype=dtype, tensor_parallel=devices).total == pytest.approx(printed, rel=0.01)


@pytest.mark.parametrize("tokens, printed, with_indexer", [(975_424, 43.67, True), (1_462_784, 54.52, False)])
def test_sparse_attention_in_8_bits(tokens: int, printed: float, with_indexer: bool) -> None:
    """sgl-project/sglang#11309, DeepSeek-V3.2: 656 bytes an entry, and 132 of the indexer, left out before."""
    seen = load_config({"model_type": "deepseek_v32", "num_hidden_layers": 61, "kv_lora_rank": 512})
    found = memory(seen, "sglang", tokens, dtype="fp8").total - (0 if with_indexer else 61 * 132 * tokens)
    assert found / GIB == pytest.approx(printed, rel=0.01)


def test_the_pool_of_windowed_layers(shared_data: Path) -> None:
    """sgl-project/sglang#18039, MiMo-V2-Flash on 4 devices: 300,288 tokens, 8.38 GB of keys and 5.59 of values."""
    seen = load_config(shared_data / "configs/full/XiaomiMiMo__MiMo-V2-Flash.json")
    (near,) = [one for one in stores(seen, "sglang", 4) if "sliding" in one.kind]
    assert 300_288 * near.layers * near.per_token * 2 / GIB == pytest.approx(8.38 + 5.59, rel=0.01)


def test_the_cells_of_a_window_in_llama_cpp(shared_data: Path) -> None:
    """ggml-org/llama.cpp#27680, DeepSeek-V4 with a batch of 4,096 beside its window of 128: 4,352 cells, 182.75 MiB.

    Here with the usual batch of 512: 768 cells.
    """
    seen = load_config(shared_data / "configs/full/deepseek-ai__DeepSeek-V4-Flash.json")
    kept = stores(seen, "llama.cpp")
    assert {one.window for one in kept} == {768}
    row = sum(one.layers * one.per_token for one in kept) * bits_of("bfloat16", "llama.cpp") / 8
    assert 4352 * row / MIB == pytest.approx(182.75, rel=0.01)
