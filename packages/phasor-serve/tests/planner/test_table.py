"""Thirty configs, four lengths, every engine: each cell proven, or refused with a reason; some live."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor.rotary.scaling import YaRN
from phasor_serve.engines import ENGINES, read_as
from phasor_serve.planner import Plan, plan

from .test_traps import CLEAN

STRETCH = (1, 2, 4, 8)
PAGE = Path(__file__).resolve().parents[4] / "docs" / "planner.md"
CELLS: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "results/cells.json").read_text())
SOON = ("Qwen__Qwen3-8B", "google__gemma-3-27b-it")


def length_of(data: dict[str, Any]) -> int:
    text = data.get("text_config", data)
    return int(text.get("max_position_embeddings") or 131072)


def cell(path: Path, stretch: int, engine: str) -> Plan | str:
    """A plan, or why there is no rotation for that length."""
    data = json.loads(path.read_text())
    try:
        return plan(data, length=stretch * length_of(data), engine=engine)
    except ValueError as error:
        return str(error)


def check(found: Plan | str) -> None:
    if isinstance(found, str):
        assert "LongRoPE" in found or "known" in found, found
        return
    assert (found.settings is None) == bool(found.refused)
    if found.settings is None:
        assert len(found.refused) > 20
        return
    assert found.reading is not None
    assert found.reading.length is None or found.reading.length >= found.length
    assert found.reading.model.softmax_factor == pytest.approx(found.wanted.softmax_factor, rel=1e-6)
    for mine, theirs in zip(found.wanted.layers, found.reading.model.layers, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            close = {"rtol": 1e-6, "atol": 0.0}
            torch.testing.assert_close(mine.inv_freq(found.length), theirs.inv_freq(found.length), **close)
            assert theirs.attention_factor(found.length) == pytest.approx(mine.attention_factor(found.length), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_every_cell(shared_data: Path, name: str) -> None:
    found: dict[str, str] = {}
    for engine in ENGINES:
        for stretch in STRETCH:
            made = cell(shared_data / f"configs/full/{name}.json", stretch, engine)
            check(made)
            proven = not isinstance(made, str) and made.verdict == "right"
            found[engine] = found.get(engine, "") + ("p" if proven else "r")
    assert found == CELLS[name]


def test_the_page_counts_the_cells() -> None:
    """docs/planner.md against `results/cells.json`: p is proven, r refused."""
    counted = {engine: "".join(cells[engine] for cells in CELLS.values()) for engine in ENGINES}
    assert set(CELLS) == set(CLEAN)
    assert all(len(cells) == 4 for by_engine in CELLS.values() for cells in by_engine.values())
    every = "".join(counted.values())
    assert f"{len(every)} cells: {every.count('p')} proven, {every.count('r')} refused" in PAGE.read_text(
        encoding="utf-8"
    )


LIVE = [pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in CLEAN]


@pytest.mark.parametrize("name", LIVE)
def test_transformers_itself(shared_data: Path, name: str) -> None:
    """The patched config.json, in transformers' own rotary module."""
    pytest.importorskip("transformers")
    from .theirs import rotations

    made = cell(shared_data / f"configs/full/{name}.json", 4, "transformers")
    if isinstance(made, str) or made.settings is None:
        pytest.skip(f"no settings: {made if isinstance(made, str) else made.refused}")
    assert made.settings.config is not None
    try:
        theirs = rotations(made.settings.config)
    except ValueError as error:
        pytest.skip(f"transformers has no class for it: {error}")
    if not theirs:
        pytest.skip("its module holds no frequencies (Llama 4 keeps complex ones)")
    for spec in made.wanted.with_angles("float32").distinct:
        ours = spec.inv_freq(made.length)
        assert any(
            ours.shape == other.shape and torch.allclose(ours, other.double(), rtol=1e-6, atol=0)
            and factor == pytest.approx(spec.attention_factor(made.length), rel=1e-6)
            for other, factor in theirs
        )  # fmt: skip


MLLAMA = {"model_type": "mllama", "text_config": {}, "vision_config": {"image_size": 560, "patch_size": 14}}


def test_a_model_that_the_engine_does_not_have() -> None:
    """Llama 3.2 Vision: vLLM's registry names 0.10.2 as the last version with it; SGLang and transformers have it."""
    made = plan(MLLAMA, length=131_072, engine="vllm")
    assert made.settings is None
    assert made.verdict == "wrong"
    assert "MllamaForConditionalGeneration" in made.refused
    assert "0.10.2" in made.refused
    for engine in ("transformers", "sglang"):
        assert plan(MLLAMA, length=131_072, engine=engine).verdict == "right"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_class_that_was_not_read_is_never_called_wrong(engine: str, shared_data: Path) -> None:
    """DeepSeek-V4 has a file of its own in both, which makes something of rope parameters that nobody read."""
    made = plan(shared_data / "configs/full/deepseek-ai__DeepSeek-V4-Flash.json", engine=engine)
    assert made.verdict == "not shown" and made.settings is None and "deepseek_v4" in made.refused


@pytest.mark.parametrize(
    ("engine", "name"),
    [("vllm", "helium"), ("llama.cpp", "helium"), ("exllamav3", "cohere"), ("mlx-lm", "helium"),
     ("tensorrt-llm", "helium")],
)  # fmt: skip
def test_a_model_whose_code_was_not_read_is_not_shown(engine: str, name: str) -> None:
    data = {"model_type": name, "num_hidden_layers": 2, "max_position_embeddings": 1024}
    made = plan(data, length=1024, engine=engine)
    assert made.verdict == "not shown"
    assert "not shown" in made.explain()
    assert name in made.proof.reason


@pytest.mark.parametrize(
    ("engine", "name"),
    [("exllamav3", "helium"), ("exllamav3", "llama4"), ("mlx-lm", "mllama"), ("llama.cpp", "mllama"),
     ("tensorrt-llm", "olmo3"), ("tensorrt-llm", "gemma2")],
)  # fmt: skip
def test_a_model_that_is_on_no_list_of_the_engine_is_refused(engine: str, name: str) -> None:
    """Each list is named: the wheel's classes, the architectures of the library, the page of supported models."""
    made = plan({"model_type": name}, length=131_072, original=131_072, engine=engine)
    assert made.verdict == "wrong"
    assert f"lists no class for {name} [" in made.refused


def test_exllamav3_reads_the_layers_of_olmo_3_only_where_they_are_stated() -> None:
    """exllamav3 1.6.5, architecture/olmo3.py: without layer_types no layer has a window; the written config has it."""
    reading = read_as(OLMO, "exllamav3")
    assert {spec.scaling is None for spec in reading.model.layers if spec} == {False}
    assert any("no layer_types" in rule.text for rule in reading.rules)
    made = plan(OLMO, length=131_072, engine="exllamav3")
    assert made.settings is not None and made.settings.config is not None
    assert made.settings.config["layer_types"] == list(made.config.model.layer_types)
    assert [spec and spec.scaling for spec in (made.reading or reading).model.layers[:2]] == [None, None]


def test_exllamav3_rotates_the_share_that_the_config_states_and_else_the_whole_head() -> None:
    """exllamav3 1.6.5, model/config.py: partial_rotary_factor is 1.0 where neither it nor rope_parameters say it."""
    glm = {"model_type": "glm4_moe", "num_hidden_layers": 2, "head_dim": 128, "max_position_embeddings": 1024}
    for stated, channels in (({"partial_rotary_factor": 0.5}, 64), ({}, 128)):
        assert {s.rotary_dim for s in read_as({**glm, **stated}, "exllamav3").model.distinct} == {channels}


def test_a_published_model_that_every_list_names(shared_data: Path) -> None:
    qwen = shared_data / "configs/full/Qwen__Qwen3-8B.json"
    assert {plan(qwen, length=40960, engine=engine).verdict for engine in ENGINES} == {"right"}


def test_the_published_length_of_training(shared_data: Path) -> None:
    """Qwen3-8B: its card gives YaRN 4.0 over 32,768 for 131,072 tokens, and its config declares 40,960."""
    from phasor import read_config
    from phasor.tools.inspect.model_page import model_facts, page

    qwen = shared_data / "configs/full/Qwen__Qwen3-8B.json"
    made = plan(qwen, length=131_072, engine="vllm")
    scaling = made.spec.scaling
    assert isinstance(scaling, YaRN)
    assert (scaling.factor, scaling.original_max_position, made.trained) == (4.0, 32_768, 32_768)
    assert "QwenLM/Qwen3" in made.explain()
    model = read_config(qwen)
    assert [fact.trained_length for fact in model_facts(model)] == [32_768]
    assert "32,768 positions [QwenLM/Qwen3" in page(model, model_facts(model))
    unstretched = plan(qwen, length=40_960)
    assert (unstretched.factor, unstretched.wanted.layers) == (1.0, model.layers)
    assert "trained with 32,768" in unstretched.explain()
    assert "trained with" not in plan(qwen, length=32_768).explain()
    assert plan(qwen, length=81_920, original=40_960).factor == 2.0


@pytest.mark.parametrize(
    ("model_type", "declared", "base", "trained"),
    [
        ("qwen2", 131_072, 1e6, 32_768),  # Qwen2.5-7B: arXiv:2412.15115, section 3.3
        ("mistral", 32_768, 1e4, 8_192),  # Mistral 7B 0.1: arXiv:2310.06825, table 1
        ("mistral", 32_768, 1e6, None),  # 0.2
        ("qwen2", 32_768, 1e6, None),  # Qwen2.5-7B-Instruct declares it
    ],
)
def test_a_length_that_was_trained_or_a_caution(
    model_type: str, declared: int, base: float, trained: int | None
) -> None:
    from phasor import read_config
    from phasor.tools.inspect.model_page import model_facts, page

    data = {"model_type": model_type, "max_position_embeddings": declared, "rope_theta": base, "num_hidden_layers": 2}
    made = plan(data, length=4 * declared, engine="transformers")
    assert made.trained == (trained or declared)
    assert made.factor == 4 * declared / made.trained
    cautioned = f"whether it was trained with the declared {declared:,} is not shown" in made.explain()
    assert cautioned == (trained is None)
    assert (f"trained with {made.trained:,} positions [" in made.explain()) == (trained is not None)
    model = read_config(data)
    lines = page(model, model_facts(model))
    word = "declared" if trained is None else "trained "
    assert f"  {word}   {made.trained:,} tokens: " in lines
    assert "not shown" not in "".join(plan(data, length=4 * declared, original=declared // 2).why)


def test_other_models_of_the_type_declare_what_they_were_trained_with(shared_data: Path) -> None:
    """Qwen3-Coder: 262,144 declared and native, base 1e7 (its card); nothing published differs."""
    coder = shared_data / "configs/full/Qwen__Qwen3-Coder-480B-A35B-Instruct.json"
    assert plan(coder, length=524_288).trained == 262_144


OLMO = {
    "model_type": "olmo3", "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
    "num_hidden_layers": 4, "max_position_embeddings": 65536, "rope_theta": 500000.0, "sliding_window": 4096,
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
                     "beta_slow": 1.0, "attention_factor": 1.2079441541679836},
}  # fmt: skip


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang"])
def test_a_stated_attention_factor_follows_the_stretch(engine: str) -> None:
    """Olmo 3 states 0.1 ln 8 + 1 for its factor of 8; for 16 the paper's formula is 0.1 ln 16 + 1 (YaRN, eq. 22)."""
    made = plan(OLMO, length=131_072, engine=engine)
    assert made.settings is not None, made.refused
    assert made.spec.attention_factor() == pytest.approx(0.1 * math.log(16) + 1, rel=1e-9)
    assert "1.20794" in made.explain() and "becomes 1.27726" in made.explain()
    assert plan(OLMO, length=65_536, engine="transformers").wanted.layers[3] is not None
    (kept,) = {s.attention_factor() for s in plan(OLMO, length=65_536).wanted.distinct if s.scaling is not None}
    assert kept == 1.2079441541679836


def test_olmo_3_runs_with_the_modules_of_transformers_in_vllm() -> None:
    """vLLM 0.33.0's registry: Olmo3ForCausalLM in _TRANSFORMERS_SUPPORTED_MODELS."""
    made = plan(OLMO, length=131_072, engine="vllm")
    assert made.verdict == "right" and made.reading is not None
    assert made.reading.model.layers == made.wanted.layers
    assert any("transformers' own modules run" in rule.text for rule in made.reading.rules)


def test_llama_cpp_leaves_the_windowed_layers_of_olmo_3_unscaled() -> None:
    """llama.cpp, src/models/olmo2.cpp: freq_scale 1, ext_factor 0 and attn_factor 1 where ``is_swa``."""
    made = plan(OLMO, length=131_072, engine="llama.cpp")
    assert made.settings is not None and made.reading is not None
    near, far = made.reading.model.layers[0], made.reading.model.layers[3]
    assert near is not None and (near.base, near.scaling) == (500_000.0, None)
    assert far is not None and far.attention_factor() == pytest.approx(0.1 * math.log(16) + 1, rel=1e-9)


def test_an_attention_factor_of_ones_own_is_kept_and_said() -> None:
    own = {**OLMO, "rope_scaling": {**OLMO["rope_scaling"], "attention_factor": 1.5}}  # type: ignore[dict-item]
    made = plan(own, length=131_072)
    assert made.spec.attention_factor() == 1.5
    assert "attention_factor 1.5 is kept" in made.explain()
