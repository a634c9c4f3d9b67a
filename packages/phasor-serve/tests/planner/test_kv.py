"""Bytes of keys and values against the caches that transformers allocates, and published numbers."""

import json
from pathlib import Path

import pytest
import torch

from cache_argument import given
from conformance.tiny import tiny_model
from engines.cases import RESULTS, changed
from phasor_serve.engines import ENGINES, load_config
from phasor_serve.planner import memory
from phasor_serve.planner.kv import bits_of, stores
from refused import refused

FAMILIES = [
    "llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "gemma3n_text",
    "gemma4_text", "gpt_oss", "phi", "phi3", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "glm_moe_dsa", "minimax_m3_vl_text", "mllama_text_model", "glm", "glm4", "glm4_moe", "cohere",
    "cohere2", "olmo2", "olmo3", "exaone4", "smollm3", "granite", "llama4_text", "qwen3_next", "qwen3_5_text",
    "lfm2", "starcoder2", "stablelm", "minimax_m2", "ernie4_5", "hunyuan_v1_dense", "arcee", "apertus", "seed_oss",
    "nemotron", "gpt_neox", "falcon", "persimmon", "helium",
]  # fmt: skip
TOKENS = 23  # above the windows of the tiny models


def elements(layer: object, window: bool) -> int:
    """The numbers that one layer of a cache holds; windows keep room for the token to come."""
    found = 0
    for name in ("keys", "values"):
        if isinstance(held := getattr(layer, name, None), torch.Tensor):
            found += held.numel() // held.shape[-2] * (held.shape[-2] + (window and held.shape[-2] < TOKENS))
    for name in ("indexer_keys", "idx_keys"):
        found += held.numel() if isinstance(held := getattr(layer, name, None), torch.Tensor) else 0
    for name in ("conv_states", "recurrent_states"):
        held = getattr(layer, name, None)
        several = held.values() if isinstance(held, dict) else held if isinstance(held, list) else [held]
        found += sum(one.numel() for one in several if isinstance(one, torch.Tensor))
    return found


QUICK = ("qwen3", "gemma3_text", "deepseek_v3", "qwen3_next")
EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAMILIES]


@pytest.mark.parametrize("family", EVERY)
def test_the_caches_of_transformers(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    model = tiny_model(family)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.zeros(1, TOKENS, dtype=torch.long), **given(cache), use_cache=True)
    held = sum(elements(layer, getattr(layer, "is_sliding", False)) for layer in cache.layers)
    seen = load_config(model.config)
    assert memory(seen, "transformers", TOKENS, dtype="int8").total == held
    assert memory(seen, "transformers", TOKENS, dtype="bfloat16", batch=3).total == 6 * held


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt_oss"])
def test_a_static_cache(family: str) -> None:
    """It is allocated whole: the length in layers with full attention, the window in the others."""
    transformers = pytest.importorskip("transformers")
    model = tiny_model(family)
    cache = transformers.StaticCache(config=model.config, max_cache_len=TOKENS)
    with torch.no_grad():
        model(input_ids=torch.zeros(1, 2, dtype=torch.long), **given(cache), use_cache=True)
    held = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert memory(load_config(model.config), "transformers", TOKENS, dtype="int8").total == held


PUBLISHED = [
    "Qwen__Qwen3-8B", "Qwen__Qwen2.5-7B-Instruct", "Qwen__Qwen3-30B-A3B", "meta-llama__Meta-Llama-3.1-8B",
    "meta-llama__Llama-3.2-3B-Instruct", "meta-llama__Meta-Llama-3.1-405B", "google__gemma-2-9b-it",
    "google__gemma-3-27b-it", "google__gemma-4-26B-A4B", "openai__gpt-oss-120b", "deepseek-ai__DeepSeek-V3",
    "zai-org__GLM-5", "mistralai__Mixtral-8x7B-v0.1", "microsoft__phi-4", "Qwen__Qwen3.5-27B",
    "LGAI-EXAONE__EXAONE-4.0-32B", "Qwen__Qwen3-VL-32B-Instruct",
]  # fmt: skip
WHOLE = [pytest.param(name, marks=() if "Qwen3-8B" in name else pytest.mark.slow) for name in PUBLISHED]
FEED_FORWARD = ("mlp", "block_sparse_moe", "feed_forward")


class Passes(torch.nn.Module):
    """In the place of a feed-forward layer, whose choice of experts has no meaning without values."""

    def __init__(self, with_scores: bool) -> None:
        super().__init__()
        self.with_scores = with_scores

    def forward(self, x: torch.Tensor, *more: object, **named: object) -> object:
        return (x, None) if self.with_scores else x


@pytest.mark.parametrize("name", WHOLE)
def test_a_published_config_whole_on_the_meta_device(shared_data: Path, name: str) -> None:
    """All layers at their real sizes, above every window; transformers keeps one token less than a window has."""
    transformers = pytest.importorskip("transformers")
    data = json.loads((shared_data / f"configs/full/{name}.json").read_text())
    config = transformers.CONFIG_MAPPING[data["model_type"]].from_dict(data).get_text_config()
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    for module in list(model.modules()):
        for place in FEED_FORWARD:
            if isinstance(getattr(module, place, None), torch.nn.Module):
                setattr(module, place, Passes(config.model_type == "gpt_oss"))
    cache, length = transformers.DynamicCache(config=config), 5000
    with torch.no_grad():
        ids = torch.zeros(1, length, dtype=torch.long, device="meta")
        model(input_ids=ids, **given(cache), use_cache=True)
    held = sum(elements(layer, False) for layer in cache.layers)
    assert memory(load_config(data), "transformers", length, dtype="int8").total == pytest.approx(held, rel=0.001)


def test_gpt_oss(shared_data: Path) -> None:
    """73,728 bytes a token in vLLM (alvarobartt/hf-mem#60); in transformers, half of that beyond the window of 128."""
    seen = load_config(shared_data / "configs/full/openai__gpt-oss-120b.json")
    for n in (1, 100, 128, 129, 5000, 131072):
        assert memory(seen, "vllm", n).total == 73_728 * n
        assert memory(seen, "transformers", n).total == 73_728 * min(n, 128) + 36_864 * max(0, n - 128)
    assert memory(seen, "vllm", 1000, tensor_parallel=8).total == 73_728 * 1000 // 8
    assert memory(seen, "vllm", 1000, tensor_parallel=16).total == 73_728 * 1000 // 8  # eight heads: then repeated


@pytest.mark.parametrize(
    "name, length, gigabytes",
    [
        ("google__gemma-3-27b-it", 131072, 10.41),
        ("Qwen__Qwen3.5-27B", 262144, 16.00),
        ("deepseek-ai__DeepSeek-V3", 163840, 10.72),
        ("zai-org__GLM-5", 202752, 17.18),
        ("moonshotai__Kimi-K2-Instruct", 262144, 17.16),
        ("Qwen__Qwen3-0.6B", 40960, 4.38),
    ],
)
def test_published_sizes(shared_data: Path, name: str, length: int, gigabytes: float) -> None:
    """The column "correct estimate" of unslothai/unsloth#4757 in GiB, of windows alone; GLM-5's has its draft layer."""
    seen = load_config(shared_data / f"configs/full/{name}.json")
    found = memory(seen, "transformers", length)
    states = sum(size for store, size in found.stores if store.state)
    indexed = sum(2 * store.layers * length * one.values for store, _ in found.stores for one in store.beside)
    assert bool(indexed) == ("GLM" in name)  # the table leaves out the keys of its indexer
    draft = found.draft if "GLM" in name else 0
    assert (found.total - states - indexed + draft) / 2**30 == pytest.approx(gigabytes, rel=0.01)


def test_the_keys_of_an_indexer(shared_data: Path) -> None:
    """One head of 128 beside 576 values, in each layer that has an indexer of its own (GLM-5.2: 21 of 78).

    132 bytes in vLLM (`DeepseekV32IndexerCache`: head_size 132, uint8) and in SGLang (`NSATokenToKVPool`: 128 bytes
    and a float32 scale); the cache's dtype in transformers (`DynamicIndexedLayer`) and mlx-lm (`deepseek_v32.py`).
    """
    deepseek = load_config({"model_type": "deepseek_v32", "num_hidden_layers": 61, "kv_lora_rank": 512})
    by_engine = {"vllm": 1152 + 132, "sglang": 1152 + 132}
    for engine in ENGINES:
        assert memory(deepseek, engine, 1000).total == 1000 * 61 * by_engine.get(engine, 1152 + 256)
    wide = load_config({**deepseek.data, "index_head_dim": 256})
    assert memory(wide, "vllm", 1000).total == 1000 * 61 * (1152 + 256 + 2 * 4)  # a scale for each 128 channels
    shared = load_config(shared_data / "configs/full/zai-org__GLM-5.2.json")
    full = shared.text["indexer_types"].count("full")
    assert full == 21
    assert memory(shared, "transformers", 10).total == 10 * 2 * (78 * 576 + full * 128)


def test_cross_attention_does_not_grow_with_the_text() -> None:
    """Llama 3.2 Vision 11B: 8 of 40 layers see the image alone, 4 tiles of 1,601 patches (`MllamaVisionModel`)."""
    images = {"image_size": 560, "patch_size": 14}
    seen = load_config({"model_type": "mllama", "text_config": {}, "vision_config": images})
    found = memory(seen, "transformers", 131_072)
    assert found.total == 32 * 131_072 * 2 * 8 * 128 * 2
    assert found.per_token == 32 * 2 * 8 * 128 * 2
    image = 8 * 4 * 1601 * 2 * 8 * 128 * 2
    assert any(f"{image / 2**20:.3g} MiB" in note and "image" in note for note in found.notes)


def test_heads_of_each_block(shared_data: Path) -> None:
    """Nemotron-NAS: 64 heads in groups of 8, so 8 heads of keys in each of the 49 blocks with attention."""
    seen = load_config(shared_data / "configs/full/nvidia__Llama-3_3-Nemotron-Super-49B-v1.json")
    assert memory(seen, "transformers", 7).total == 7 * 49 * 2 * 8 * 128 * 2


def test_compressed_entries(shared_data: Path) -> None:
    """DeepSeek-V4: a window of keys that are values too, 512 for every 4 or 128 tokens, and 128 of the indexer.

    transformers keeps ``sliding_window - 1`` rows between calls (`DeepseekV4HCACache.update`); the window itself is
    counted here, as for other windowed layers. Tokens that wait for a block to fill are left out.
    """
    seen = load_config(shared_data / "configs/full/deepseek-ai__DeepSeek-V4-Flash.json")
    n = 4096
    entries = 21 * (n // 4) * (512 + 128) + 20 * (n // 128) * 512
    assert memory(seen, "transformers", n).total == 2 * (43 * 128 * 512 + entries)
    assert any("not shown" in note for note in memory(seen, "vllm", n).notes)


def test_the_caches_of_exllamav3() -> None:
    """What its own caches keep per token and layer; windows that its rings keep are no pages."""
    compared = 0
    for case in json.loads((RESULTS / "exllamav3.json").read_text())["cases"]:
        config = changed(case["config"], case["changes"])
        text = config.get("text_config", config)
        unsaid = ("qk_rope_head_dim", "kv_lora_rank"), ("num_global_key_value_heads", "attention_k_eq_v")
        if "error" in case or any(key in text and other not in text for key, other in unsaid):
            continue
        seen = load_config(config)
        kept = {store.kind: store for store in stores(seen, "exllamav3")}
        for index, row in case["layers"].items():
            store = kept[seen.model.layer_types[int(index)]]
            assert (store.per_token if store.window is None else None) == row.get("cached")
            compared += 1
    assert compared > 25


def test_windows_by_engine(shared_data: Path) -> None:
    """gpt-oss keeps 2 x 8 x 64 values a token in each of 36 layers; half of them see 128 tokens."""
    seen = load_config(shared_data / "configs/full/openai__gpt-oss-120b.json")
    full, half = 73_728 * 131_072, 36_864 * (131_072 + 128)
    sizes = {engine: memory(seen, engine, 131_072).total for engine in ENGINES}
    others = {"vllm": full, "tensorrt-llm": full, "llama.cpp": 36_864 * (131_072 + 768)}  # a batch of 512 beside it
    assert sizes == {engine: others.get(engine, half) for engine in ENGINES}
    gemma = load_config(shared_data / "configs/full/google__gemma-3-27b-it.json")
    assert memory(gemma, "exllamav3", 131_072).total == memory(gemma, "vllm", 131_072).total


def test_latent_attention_is_not_split(shared_data: Path) -> None:
    """DeepSeek-V3 keeps 512 + 64 values a token and layer, on every device: 70,272 bytes a token."""
    seen = load_config(shared_data / "configs/full/deepseek-ai__DeepSeek-V3.json")
    assert memory(seen, "vllm", 1).total == memory(seen, "vllm", 1, tensor_parallel=8).total == 61 * 576 * 2
    assert memory(seen, "vllm", 10).draft == 576 * 2 * 10


def test_the_states_of_convolutions() -> None:
    """LFM2: a convolution keeps ``hidden_size`` rows of ``conv_L_cache`` inputs (`Lfm2ShortConv`), whatever the length.

    Between them one layer of attention: keys and values, 2 heads of 16 channels each.
    """
    config = {
        "model_type": "lfm2", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "conv_L_cache": 3, "layer_types": ["conv", "full_attention", "conv"],
        "max_position_embeddings": 128, "rope_theta": 1e4,
    }  # fmt: skip
    for length in (10, 20):
        found = memory(load_config(config), "transformers", length, dtype="float32")
        assert found.total == 4 * (2 * 64 * 3 + length * 2 * 2 * 16)
        assert found.to_dict()["kinds"] == {
            "conv": {"layers": 2, "bytes": 4 * 2 * 64 * 3, "window": None},
            "full_attention": {"layers": 1, "bytes": 4 * length * 64, "window": None},
        }
    assert any("a state of 192 values" in line for line in found.describe())


def test_the_layers_of_a_plan_as_text_and_as_data(shared_data: Path) -> None:
    """gpt-oss in llama.cpp: 18 of 36 layers keep 768 cells, 1,024 values each of 2 bytes."""
    found = memory(load_config(shared_data / "configs/full/openai__gpt-oss-120b.json"), "llama.cpp", 131_072)
    sizes = {"sliding_attention": (768, 18 * 768 * 2048), "full_attention": (None, 18 * 131_072 * 2048)}
    assert found.to_dict() == {
        "total": sum(size for _, size in sizes.values()), "per_token": 18 * 2048, "draft": 0, "notes": [],
        "kinds": {kind: {"layers": 18, "bytes": size, "window": window} for kind, (window, size) in sizes.items()},
    }  # fmt: skip
    lines = found.describe()
    assert "the next one costs 36,864 bytes" in lines[0]
    assert [("last 768 tokens" in line, "draft" in line) for line in lines[1:]] == [(True, False), (False, False)]
    draft = memory(load_config(shared_data / "configs/full/deepseek-ai__DeepSeek-V3.json"), "vllm", 2**20)
    assert any(line == "  and 1.12 GiB for draft layers, if they are used" for line in draft.describe())


@pytest.mark.parametrize("devices, heads", [(1, 8), (2, 4), (8, 1), (16, 1), (3, 0), (12, 0)])
def test_heads_of_keys_are_split_or_repeated(devices: int, heads: int) -> None:
    """8 heads of keys on 2 devices: 4 each; on 16: each head stands twice; 3 and 12 neither divide nor repeat them."""
    sizes = {"hidden_size": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 1}
    config = load_config({"model_type": "llama", **sizes})
    if heads:
        assert memory(config, "vllm", 10, tensor_parallel=devices).total == 10 * 2 * heads * 32 * 2
        return
    with pytest.raises(ValueError, match=f"tensor_parallel must divide the 8 heads of keys.*got {devices}"):
        memory(config, "vllm", 10, tensor_parallel=devices)


def test_bits_of_cache_types() -> None:
    """ggml's blocks by the gguf package; groups of 32 with a scale (ExLlamaV3), of 64 with scale and bias (mlx-lm)."""
    gguf = pytest.importorskip("gguf")
    sizes = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    for name, bits in ENGINES["llama.cpp"].serving.caches.items():
        values, size = sizes[name]
        assert bits == 8 * size / values
    for bits in (2, 3, 4, 5, 6, 8):
        assert bits_of(f"q{bits}", "exllamav3") == (32 * bits + 16) / 32
        assert bits_of(f"q{bits}", "mlx-lm") == (64 * bits + 2 * 16) / 64
    assert {bits_of("fp8", engine) for engine in ("vllm", "sglang", "tensorrt-llm")} == {8}


LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
test_bad_input = refused(
    """
dtype='q8_0' => dtype must be a cache type that vllm has, one of … fp8, got 'q8_0'
tensor_parallel=0 => tensor_parallel must be
batch=0 => batch must
""",
    globals(),
    "memory(load_config(LLAMA), 'vllm', 8, {})",
)
