"""What fits a memory: against a search by hand, against reports of what did and did not fit, and bad input."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.cases import configs
from phasor.tools.checkpoints.formats.safetensors_file import write_header
from phasor_serve.engines import ENGINES, load_config
from phasor_serve.planner import Weights, fit, memory, plan, plan_in, read_weights
from phasor_serve.planner.amounts import bytes_in, tokens_in
from phasor_serve.planner.fit import work_of
from phasor_serve.planner.weights import USUAL, _matrices, _shapes, count_weights

GIB = 2**30
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rope_theta": 5e5,
}  # fmt: skip
WEIGHTS = Weights(int(14.99 * GIB), int(14.99 * GIB), "as vLLM prints it")
RESERVES = {name: engine.serving.reserve for name, engine in ENGINES.items() if engine.serving.reserve}


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("batch", [1, 3])
def test_the_longest_that_fits_is_that_of_a_search_by_hand(engine: str, batch: int) -> None:
    """The next page more is too much, by the sum of weights, keys and values, and a pass."""
    config = load_config(LLAMA)
    held = Weights(4 * GIB, 6 * GIB, "estimated")
    found = fit(config, engine, 24 * GIB, held, 8192, batch=batch)
    reserve, page = RESERVES[engine](24 * GIB, 1), ENGINES[engine].serving.page

    def fits(tokens: int) -> bool:
        free = reserve.usable - held.high - work_of(config, reserve, tokens)[1]
        return memory(config, engine, tokens, batch=batch).total <= reserve.share * free

    assert found.longest % page == 0 and fits(found.longest) and not fits(found.longest + page)
    assert found.longest <= found.at_best
    (slots,) = [n for n in range(1, 200) if n * found.cache <= fits_free(reserve, held, config) < (n + 1) * found.cache]
    assert found.slots == slots and found.fits


def fits_free(reserve: Any, held: Weights, config: Any) -> float:
    return float(reserve.share * (reserve.usable - held.high - work_of(config, reserve, 8192)[1]))


QWEN_7B = {**LLAMA, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 151936}  # Qwen1.5's shapes
QWEN_32B = {  # Qwen3-32B's shapes
    **configs()["Qwen/Qwen3-8B"], "hidden_size": 5120, "num_attention_heads": 64, "num_hidden_layers": 64,
    "intermediate_size": 25600, "vocab_size": 151936,
}  # fmt: skip
REPORTS = [  # where, model, GiB of weights, engine, cache type, GiB of a device, tokens, whether they fitted
    ("vllm-project/vllm#10517: 3090", LLAMA, 14.99, "vllm", "bfloat16", 0.90 / 0.92 * 23.58, 20_000, True),
    ("vllm-project/vllm#10517: 3090", LLAMA, 14.99, "vllm", "bfloat16", 0.90 / 0.92 * 23.58, 131_072, False),
    ("vllm-project/vllm#10511: H100", LLAMA, 14.96, "vllm", "bfloat16", 0.90 / 0.92 * 79.22, 8_192, True),
    ("QwenLM/Qwen3#16: 3090, GPTQ", QWEN_7B, 5.46, "vllm", "bfloat16", 0.90 / 0.92 * 23.58, 32_768, False),
    ("tscibilia/home-ops#3795: 24 GB", "Qwen/Qwen3.5-27B", 16.4, "llama.cpp", "q4_0", 23.5, 180_224, True),
    ("HilbertraumAI/HilbertRaum#391", "google/gemma-4-26B-A4B", 13.0, "llama.cpp", "float16", 23.2, 8_192, True),
    ("tscibilia/home-ops#3795: before", "Qwen/Qwen3.5-27B", 14.34, "llama.cpp", "q8_0", 23.5, 131_072, True),
    ("ggml-org/llama.cpp#9517: 12 GB, Q4_K_M", LLAMA, 4.58, "llama.cpp", "float16", 11.76, 131_072, False),
    ("defilantech/LLMKube#87: 2 x 16 GB, Q4_K_M", QWEN_32B, 18.4, "llama.cpp", "float16", 31.0, 8_192, True),
    ("defilantech/LLMKube#87: 2 x 16 GB, Q4_K_M", QWEN_32B, 18.4, "llama.cpp", "float16", 31.0, 131_072, False),
    ("vllm-project/recipes#810: 2 x 5090, FP8", "Qwen/Qwen3.5-27B", 28.56, "vllm", "bfloat16", 31.4, 262_144, True),
    ("vllm-project/vllm#41695: 5090, FP8", "Qwen/Qwen3-30B-A3B", 29.0, "vllm", "bfloat16", 0.95 / 0.92 * 31.4, 16_384,
     False),
]  # fmt: skip


@pytest.mark.parametrize("where, model, weights, engine, dtype, gib, tokens, fitted", REPORTS)
def test_reports_of_what_fitted(
    where: str, model: Any, weights: float, engine: str, dtype: str, gib: float, tokens: int, fitted: bool
) -> None:
    """vLLM took 0.9 of the memory then, and takes 0.92 now: the same bytes are left of a memory smaller by that.

    The addresses are https://github.com/, the repository, /issues/ and the number. llama.cpp's layers lie on two cards.
    """
    size, devices = int(weights * GIB), 2 if "2 x 5090" in where else 1
    config = load_config(model if isinstance(model, dict) else configs()[model])
    held = Weights(size, size, "read")
    found = fit(config, engine, int(gib * GIB), held, tokens, dtype=dtype, tensor_parallel=devices)
    assert found.fits == fitted


def test_what_vllm_left_beside_a_drafting_layer() -> None:
    """vllm-project/recipes#810, 2 x 5090: 377,456 tokens in 16 layers of full attention and one that drafts."""
    config, held = load_config(configs()["Qwen/Qwen3.5-27B"]), Weights(int(28.56 * GIB), int(28.56 * GIB), "read")
    found = fit(config, "vllm", int(31.4 * GIB), held, 262_144, tensor_parallel=2)
    assert found.longest * 16 / 17 <= 1.01 * 377_456 and found.at_best * 16 / 17 >= 377_456


def test_what_vllm_left_for_the_cache() -> None:
    """vllm-project/vllm#10511, Llama 3 8B on 79.22 GiB at 0.9: 53.29 GiB; here from the worst to the best estimate."""
    at_most = int(79.22 * 0.90 / 0.92 * GIB)
    found = fit(load_config(LLAMA), "vllm", at_most, WEIGHTS, 8192)
    assert found.longest <= 53.29 * GIB / 131_072 <= found.at_best


def test_the_reserve_of_sglang_is_its_own_formula() -> None:
    """0.5.23, memory_hook.py: 512 + 1.5 x 4096 + 1024 / 8 + 2 x 48 MiB of a card with 24 GiB; and of one with 80."""
    small, large = (fit(load_config(LLAMA), "sglang", size * GIB, WEIGHTS, 8192).reserve for size in (24, 80))
    assert small.usable == (24 * 1024 - 512 - 6144 - 128 - 96) * 2**20
    assert large.usable == (80 * 1024 - 512 - 12288 - 128 - 512) * 2**20
    assert "work" not in fit(load_config(LLAMA), "sglang", 80 * GIB, WEIGHTS, 8192).describe()[1]
    split = fit(load_config(LLAMA), "sglang", 24 * GIB, WEIGHTS, 8192, tensor_parallel=4).reserve
    assert split.usable == (24 * 1024 - 512 - 6144 - 512 - 320) * 2**20  # 160 sequences in a graph from 4 devices on


def test_what_the_documentation_of_engines_states() -> None:
    """vLLM: CacheConfig.gpu_memory_utilization 0.92 (docs.vllm.ai, stable), 8,192 tokens a batch on an H100, 2,048 on
    smaller cards; TensorRT-LLM: free_gpu_memory_fraction 0.9 (kvcacheconfig.html); llama.cpp: -ub 512."""
    small, large = (RESERVES["vllm"](size * GIB, 1) for size in (24, 80))
    assert (small.usable / (24 * GIB), small.tokens, large.tokens) == (0.92, 2048, 8192)
    shares = {engine: (r.share, r.usable / (24 * GIB)) for engine in ENGINES if (r := RESERVES[engine](24 * GIB, 1))}
    assert shares["tensorrt-llm"] == (0.9, 1.0) and shares["mlx-lm"] == (1.0, 0.75)
    assert RESERVES["llama.cpp"](24 * GIB, 1).tokens == 512 and RESERVES["transformers"](GIB, 1).tokens is None


def test_activations() -> None:
    """Llama 3 8B, 2,048 tokens of 2 bytes: 2 x 4,096 of the stream and 3 x 14,336; then logits of one token."""
    alive = 2048 * 2 * (2 * 4096 + 3 * 14336) + 4 * 128_256
    expected = (int(alive + 0.2 * GIB), int(2 * alive + 2 * GIB))
    assert work_of(load_config(LLAMA), RESERVES["vllm"](24 * GIB, 1), 100_000) == expected
    assert work_of(load_config(LLAMA), RESERVES["vllm"](24 * GIB, 1), 1)[0] < expected[0]
    wide = load_config({**LLAMA, "intermediate_size": 64})  # 32 heads of queries and 8 of keys and of values, 128 wide
    alive = 512 * 4 * (2 * 4096 + (32 + 2 * 8) * 128 + 128_256)  # llama.cpp: float32, and logits of the whole batch
    expected = (int(alive + 0.3 * GIB), int(2 * alive + GIB))
    assert work_of(wide, RESERVES["llama.cpp"](24 * GIB, 1), 100_000) == expected


def test_a_plan_for_a_memory_asks_for_no_stretch_unless_a_length_is_named() -> None:
    """A card that holds more than the declared length gets that; a small one gets what it holds."""
    held = Weights(4 * GIB, 5 * GIB, "estimated")
    made, found = plan_in(LLAMA, 80 * GIB, held, engine="vllm")
    assert (made.length, made.factor) == (131_072, 1.0) and found.longest > 131_072
    made, found = plan_in(LLAMA, 16 * GIB, held, engine="vllm")
    assert made.length == found.longest < 131_072 and made.verdict == "right"
    made, found = plan_in(LLAMA, 80 * GIB, held, engine="vllm", length=262_144)
    assert (made.length, made.factor) == (262_144, 2.0)


def test_a_cache_of_fewer_bits_and_more_devices_hold_more() -> None:
    held = Weights(4 * GIB, 4 * GIB, "read")
    plain, small, split = (
        fit(load_config(LLAMA), "vllm", 24 * GIB, held, 8192, **change).longest
        for change in ({}, {"dtype": "fp8"}, {"tensor_parallel": 2})
    )
    assert 1.9 * plain < small < 2.1 * plain and split > 2 * plain
    half = fit(load_config(LLAMA), "vllm", 24 * GIB, Weights(4 * GIB, 6 * GIB, "read"), 8192, tensor_parallel=2).weights
    assert (half.low, half.high) == (2 * GIB, 3 * GIB)


def test_an_engine_that_leaves_too_little_does_not_silence_the_others(tmp_path: Path, phasor: Any) -> None:
    """SGLang keeps 6.7 GiB of 24 for itself; weights of 18 GiB leave llama.cpp some room."""
    held = Weights(18 * GIB, 18 * GIB, "read")
    small, large = (plan_in(LLAMA, 24 * GIB, held, engine=name)[1] for name in ("sglang", "llama.cpp"))
    assert "below the weights" in small.describe()[0] and not small.fits and large.fits
    some = fit(load_config(LLAMA), "llama.cpp", 24 * GIB, held, large.longest, batch=2)
    assert not some.fits and some.slots == 1 and "tokens need" in some.describe()[0]


def test_a_draft_model_stands_beside() -> None:
    config, held = load_config(LLAMA), Weights(4 * GIB, 4 * GIB, "read")
    alone, both = (fit(config, "vllm", 24 * GIB, held, 8192, draft=draft) for draft in (None, config))
    assert both.cache == 2 * alone.cache and both.longest == pytest.approx(alone.longest / 2, rel=0.01)


def test_a_model_whose_memory_does_not_grow_has_no_longest() -> None:
    """Windows alone: SGLang keeps 128 tokens of each layer, whatever the length."""
    config = {**configs()["openai/gpt-oss-120b"], "num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2}
    found = fit(load_config(config), "sglang", 24 * GIB, Weights(GIB, GIB, "read"), 128)
    assert found.describe()[0].startswith("longest: any length")


def test_weights_of_files(tmp_path: Path) -> None:
    """Two shards of 3 x 5 and 7 numbers in 16 bits; a GGUF file of 64 numbers in Q8_0: 34 bytes for each 32."""
    gguf = pytest.importorskip("gguf")
    for i, shape in enumerate(((3, 5), (7,)), 1):
        size = 2 * math.prod(shape)
        head = write_header([("w", "BF16", shape, size)], {"a note": "that is no weight"})
        (tmp_path / f"model-{i:05d}-of-00002.safetensors").write_bytes(head + b"\0" * size)
    for place in (tmp_path, tmp_path / "model-00001-of-00002.safetensors"):
        assert (read_weights(place).low, read_weights(place).high) == (44, 44)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", np.zeros((2, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    assert read_weights(tmp_path / "m.gguf").low == 68


def test_weights_by_the_config() -> None:
    """Qwen3-8B has 8.2 billion weights, 6.95 of them outside the embeddings (its card)."""
    pytest.importorskip("transformers")
    config = load_config(configs()["Qwen/Qwen3-8B"] | {"intermediate_size": 12288, "vocab_size": 151936})
    whole, four = count_weights(config), count_weights(config, 4)
    assert whole.low == whole.high == pytest.approx(2 * 8.19e9, rel=0.005)
    assert four.low == pytest.approx(whole.low / 4) and four.high == pytest.approx(
        6.95e9 * 5 / 8 + 1.24e9 * 2, rel=0.01
    )


@pytest.mark.parametrize("model_type", USUAL)
def test_the_matrices_of_a_usual_decoder(model_type: str) -> None:
    """As many weights as in transformers' own model, but for norms and biases."""
    pytest.importorskip("transformers")
    experts = (
        {"num_experts": 8, "moe_intermediate_size": 1024} if model_type == "qwen3_moe" else {"num_local_experts": 8}
    )
    for tied in (False, True):
        config = load_config({
            **LLAMA, **experts, "model_type": model_type, "num_hidden_layers": 3, "num_attention_heads": 40,
            "intermediate_size": 9216, "head_dim": 128, "hidden_size": 5120, "tie_word_embeddings": tied,
        })  # fmt: skip
        ours, theirs = (sum(count for count, _ in found) for found in (_matrices(config), _shapes(config.data)))
        assert ours < theirs < 1.001 * ours
        assert sum(count for count, wide in _matrices(config) if wide) == 5120 * 128_256 * (1 if tied else 2)
    assert _matrices(load_config({k: v for k, v in config.data.items() if k != "intermediate_size"})) == []


SMALL = {**LLAMA, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 100}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    for name, vocabulary in (("draft", 100), ("other", 229), ("near", 228)):
        (tmp_path / f"{name}.json").write_text(json.dumps({**SMALL, "vocab_size": vocabulary}))
    (tmp_path / "lies.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}")
    (tmp_path / "lies.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (2**50).to_bytes(8, "little") * 2)
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(b"GGUF")
    return tmp_path


@pytest.mark.parametrize(
    "words, message",
    [
        ("--memory 24", "--memory must be an amount of memory with a unit, such as 24GB"),
        ("--memory 24GV", "--memory must be an amount of memory with a unit"),
        ("--memory 0GB", "--memory must be an amount of memory with a unit"),
        ("--memory 0.05MiB --weights-bits 16 --engine vllm", "is below the weights: the engine takes"),
        ("--memory 24GB --weights-bits 0", "weights_bits must be a finite number above 0"),
        ("--memory 24GB --weights lies.safetensors", "header must end inside the file"),
        ("--memory 24GB --weights lies.gguf", "cannot hold"),
        ("--memory 24GB --weights m-00001-of-00002.gguf", "m-00002-of-00002.gguf is missing"),
        ("--memory 24GB --weights none.gguf", "cannot be opened"),
        ("--memory 24GB --weights lies.gguf --weights-bits 4", "leave --weights-bits out"),
        ("--weights-bits 4", "add --memory"),
        ("--length 1Q", "--length must be a number of tokens"),
        ("--length 9999999M", "--length must be a number of tokens from 1 to"),
        ("--dtype q8_0 --engine vllm", "dtype must be a cache type that vllm has"),
        ("--dtype q5_0 --engine ollama", "dtype must be a cache type that ollama has, one of float16, q8_0, q4_0"),
        (
            "--draft other.json --engine vllm",
            "draft must have the vocabulary of its target, 100 tokens in vllm, got 229",
        ),
        ("--draft near.json --engine vllm", "draft must have the vocabulary of its target"),
        ("--draft near.json --engine exllamav3", "draft must have the vocabulary of its target"),
        ("--draft other.json --engine llama.cpp", "draft must have the vocabulary of its target"),
        ("--engine tgi", "engine must be one of transformers, vllm"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, small: Path, phasor: Any, monkeypatch: Any) -> None:
    pytest.importorskip("gguf")
    monkeypatch.chdir(small)
    code, out, err = phasor("plan", "config.json", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err


def test_a_draft_within_128_tokens_is_one_for_llama_cpp(small: Path, phasor: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(small)
    code, out, _ = phasor("plan", "config.json", "--draft", "near.json", "--engine", "llama.cpp")
    assert code == 0 and "-md DRAFT.gguf" in out and "vocabulary, positions and scaling go with" in out
    stretched = ("--length", "256k", "--engine", "vllm")
    code, out, _ = phasor("plan", "config.json", "--draft", "draft.json", *stretched)
    assert code == 0 and '"method": "draft_model"' in out
    assert "the draft model declares 131,072 positions, the target now takes 262,144" in out
    assert "the target has yarn scaling, its draft none" in out


@pytest.mark.parametrize("engine", [*ENGINES, "ollama", "lm-studio", "koboldcpp"])
def test_an_answer_has_at_most_twelve_lines(engine: str, small: Path, phasor: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(small)
    words = ("--memory", "24GB", "--weights-bits", "16", "--length", "256k", "--draft", "draft.json")
    code, out, _ = phasor("plan", "config.json", *words, "--engine", engine, "--method", "linear")
    assert code in (0, 1) and len(out.splitlines()) <= 12
    assert any(f"  {word}  " in out for word in ("paste   ", "refused "))


def test_what_does_not_fit_is_exit_code_1_and_says_what_does(small: Path, phasor: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(small)
    ask = ("plan", "config.json", "--memory", "1.5GiB", "--weights-bits", "16", "--engine", "llama.cpp")
    code, out, _ = phasor(*ask, "--length", "16M", "--method", "none")
    assert (
        code == 1 and "16,777,216 tokens need" in out and "longest: " in out and "0 of 16,777,216 tokens at once" in out
    )
    code, out, _ = phasor(*ask, "--table")
    assert code == 0 and "131,072 tokens" in out and "at once" in out


def test_amounts() -> None:
    assert [tokens_in("n", text) for text in ("4096", "32k", "128K", "1M")] == [4096, 32768, 131072, 1048576]
    assert bytes_in("n", "23.5 GiB") == int(23.5 * GIB)
    assert bytes_in("n", "24GB") == int(0.98 * 24 * GIB)  # 23.58 GiB of a 3090 (vllm-project/vllm#10517)


PASTED = {
    "vllm": "vllm serve MODEL --max-model-len 4096",
    "sglang": "python -m sglang.launch_server --model-path MODEL --context-length 4096",
    "llama.cpp": "llama-server -m MODEL.gguf -c 4096",
    "mlx-lm": "mlx_lm.server --model MODEL",
    "ollama": r"printf 'FROM ./MODEL.gguf\nPARAMETER num_ctx 4096\n' > Modelfile && "
    "ollama create MODEL -f Modelfile && ollama run MODEL",
    "lm-studio": "lms load MODEL --context-length 4096 --gpu max",
    "koboldcpp": "koboldcpp --model MODEL.gguf --contextsize 4096 --ropeconfig 1 500000",
}


@pytest.mark.parametrize("engine, line", PASTED.items())
def test_a_pasted_line(engine: str, line: str) -> None:
    """koboldcpp raises the base of 10,000 and 500,000 by itself unless --ropeconfig stands (gpttype_adapter.cpp)."""
    assert plan(LLAMA, length=4096, engine=engine).paste() == line


QUANTIZED = [
    ("vllm", "fp8", "--kv-cache-dtype fp8"), ("sglang", "fp8", "--kv-cache-dtype fp8_e4m3"),
    ("llama.cpp", "q8_0", "-ctk q8_0 -ctv q8_0 -fa on"), ("mlx-lm", "q8", "mlx_lm.generate --model MODEL --kv-bits 8"),
    ("exllamav3", "q6", "-cq 6"), ("koboldcpp", "q4_0", "--flashattention --quantkv 2"),
    ("koboldcpp", "q8_0", "--flashattention --quantkv 1"),
    ("ollama", "q8_0", "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve & "),
]  # fmt: skip


@pytest.mark.parametrize("engine, dtype, words", QUANTIZED)
def test_the_words_for_a_cache_type(engine: str, dtype: str, words: str) -> None:
    assert words in plan(LLAMA, length=4096, engine=engine).paste(dtype)


def test_sequences_and_devices_in_a_pasted_line() -> None:
    """llama-server divides -c among its slots (tools/server/README.md: --parallel)."""
    assert "-c 16384 -np 4" in plan(LLAMA, length=4096, engine="llama.cpp").paste(batch=4)
    assert "--tensor-parallel-size 2" in plan(LLAMA, length=4096, engine="vllm").paste(tensor_parallel=2)


def test_programs_without_words_for_yarn_take_it_from_the_file() -> None:
    """Ollama's Modelfile has num_ctx alone, so the keys of the file say YaRN, which koboldcpp leaves as they are."""
    for engine in ("ollama", "lm-studio", "koboldcpp"):
        made = plan(LLAMA, length=262_144, engine=engine)
        assert made.settings is not None and made.settings.gguf is not None and made.verdict == "right"
        assert made.settings.gguf["rope.scaling.factor"] == 2.0 and "--ropeconfig" not in made.paste()
        assert "GGUF key {arch}.context_length = 262144; GGUF key" in made.brief()
    llama3 = plan(configs()["meta-llama/Llama-3.1-8B"], length=262_144, engine="ollama").brief()
    assert "(--write DIR, then convert the model again)" in llama3  # its factors are a tensor of the file
    linear = plan(LLAMA, length=262_144, engine="koboldcpp", method="linear")
    assert linear.settings is not None and "--ropeconfig 0.5 500000" in linear.paste()
