"""What a reading tells of an engine: a key that changes nothing there is named, and one that does is not."""

import math
from itertools import product
from typing import Any

import pytest

from phasor.rotary.scaling import YaRN
from phasor_serve import plan
from phasor_serve.engines import ENGINES, CannotSayError, read_as

from .cases import changed, configs

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1,
    "max_position_embeddings": 131_072, "rope_theta": 1e4,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 1, "num_attention_heads": 2, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "max_position_embeddings": 131_072, "rope_theta": 1e4,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
STATED: list[dict[str, Any]] = [
    {"attention_factor": 1.7}, {"truncate": False}, {"beta_fast": 16.0}, {"beta_slow": 2.0},
    {"mscale": 0.7, "mscale_all_dim": 1.3}, {"mscale_all_dim": 1.3},
]  # fmt: skip
CASES = list(product((LLAMA, DEEPSEEK), [name for name in ENGINES if name != "transformers"], STATED))


def rotations(config: dict[str, Any], engine: str) -> tuple[list[Any], list[str]]:
    """Frequencies and factors, and the rules, of a config in an engine."""
    reading = read_as(config, engine)
    found = [(spec.inv_freq(131_072).tolist(), spec.attention_factor(131_072)) for spec in reading.model.distinct]
    return [found, reading.model.softmax_factor], [rule.text for rule in reading.rules]


@pytest.mark.parametrize("config, engine, stated", CASES)
def test_a_key_of_yarn_that_an_engine_drops_is_named(
    config: dict[str, Any], engine: str, stated: dict[str, Any]
) -> None:
    """Where the model's own code rotates otherwise by a key, and the engine does not."""
    try:
        plain, _ = rotations({**config, "rope_scaling": YARN}, engine)
        changed, rules = rotations({**config, "rope_scaling": {**YARN, **stated}}, engine)
    except CannotSayError:  # TensorRT-LLM has no table for the YaRN of Llama
        assert (engine, config) == ("tensorrt-llm", LLAMA)
        return
    own = [rotations({**config, "rope_scaling": {**YARN, **keys}}, "transformers")[0] for keys in ({}, stated)]
    named = [key for key in stated if any(key in text and "not read" in text for text in rules)]
    assert named == (list(stated) if own[0] != own[1] and plain == changed else [])


def test_a_factor_of_llama_cpp_that_only_a_key_says() -> None:
    """YaRN's own factor for a stretch of 4 is 0.1 ln 4 + 1; a model trained with another needs the key, as planned."""
    config = {**LLAMA, "rope_scaling": {**YARN, "attention_factor": 1.7}}
    made = plan(config, length=131_072, engine="llama.cpp")
    assert made.verdict == "right" and made.settings is not None and made.settings.gguf is not None
    assert made.settings.gguf["rope.scaling.attn_factor"] == pytest.approx(1.7 / (0.1 * math.log(4) + 1), rel=1e-12)
    assert made.reading is not None
    assert [spec.attention_factor() for spec in made.reading.model.distinct] == [pytest.approx(1.7, rel=1e-9)]


QWEN, VL, PHI = "Qwen/Qwen3-8B", "Qwen/Qwen3-VL-32B-Instruct", "LongRoPE of Phi-3, shortened"
GPT_OSS, GEMMA = "openai/gpt-oss-120b", "google/gemma-3-27b-it"


LISTS = {"type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32,
         "original_max_position_embeddings": 4096, "factor": 32.0}  # fmt: skip


def hf(**override: Any) -> dict[str, Any]:
    return {"--hf-overrides": override}


def sglang(**override: Any) -> dict[str, Any]:
    return {"--json-model-override-args": override}


@pytest.mark.parametrize(
    "engine, name, changes, flags, text",
    [
        ("vllm", QWEN, {}, {"--max-model-len": 50_000, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
         "positions from 40960 on lie outside its tables of cos and sin"),
        ("vllm", QWEN, {}, hf(rope_theta=1e4), "--hf-overrides rope_theta has no effect: rope_parameters already"),
        ("vllm", VL, {}, hf(rope_theta=1e4), "--hf-overrides rope_theta has no effect: the text model reads text_conf"),
        ("vllm", QWEN, {}, hf(rope_parameters={**YARN, "rope_theta": 1e6}), "replaces the whole dictionary"),
        ("vllm", QWEN, {}, hf(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6}),
         "dynamic is static: NTK factor 1 at every length"),
        ("vllm", PHI, {}, {}, "LongRoPE without --max-model-len: 4096 positions"),
        ("vllm", PHI, {}, {"--max-model-len": 4096}, "--max-model-len 4096 chooses the short factors"),
        ("vllm", PHI, {}, {"--max-model-len": 4097}, "--max-model-len 4097 chooses the long factors"),
        ("sglang", VL, {}, sglang(rope_theta=1e4), "rope_theta has no effect: the text model reads text_config"),
        ("sglang", QWEN, {}, sglang(rope_parameters=YARN), "is merged into the dictionary"),
        ("sglang", QWEN, {}, sglang(rope_parameters={"rope_type": "linear", "factor": 2.0}),
         "factor 2 lengthens the 40960 declared positions to 81920"),
        ("sglang", QWEN, {}, sglang(rope_parameters={"rope_type": "dynamic", "factor": 2.0}),
         "dynamic is static: NTK factor 3 at every length"),
        ("sglang", PHI, {}, {}, "LongRoPE: the longest position of a batch chooses"),
        ("llama.cpp", QWEN, {}, {"-c": 131_072}, "llama-server caps -c 131072 at 40960"),
        ("llama.cpp", QWEN, {}, {"--rope-scaling": "yarn", "--rope-scale": 4.0, "--yarn-orig-ctx": 32_768},
         "YaRN flags set the training length to 32768 x 4 = 131072"),
        ("llama.cpp", GPT_OSS, {}, {}, "truncate is not read: the ends of YaRN's ramp are rounded"),
        ("mlx-lm", QWEN, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, {}, "keys of earlier calls keep their"),
        ("mlx-lm", LLAMA["model_type"], {**LLAMA, "rope_scaling": LISTS}, {}, "LongRoPE: the long factors at every"),
        ("exllamav3", PHI, {}, {}, "LongRoPE: the long factors at every length"),
        ("exllamav3", PHI, {"max_position_embeddings": 4096}, {}, "LongRoPE: the short factors at every length"),
        ("exllamav3", QWEN, {"rope_scaling": YARN}, {}, "factor 4.0 is not read: 40960 / 32768 = 1.25"),
        ("exllamav3", QWEN, {"rope_theta": None}, {}, "no rope_theta: base 10000"),
        ("exllamav3", GEMMA, {"text_config": {"model_type": "gemma3_text", "rope_local_base_freq": 5e4}}, {},
         "rope_local_base_freq is not read: 10000"),
        ("tensorrt-llm", QWEN, {}, {"--max_seq_len": 40_961}, "--max_seq_len 40961 is cut to 40960, with a warning"),
        ("tensorrt-llm", QWEN, {"rope_scaling": YARN}, {}, "rope_scaling (yarn) is not read: the fused kernel"),
        ("tensorrt-llm", LLAMA["model_type"], {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, {},
         "dynamic: factor is not read, alpha is: 1"),
    ],
)  # fmt: skip
def test_what_an_engine_does_otherwise_is_told(
    engine: str, name: str, changes: dict[str, Any], flags: dict[str, Any], text: str
) -> None:
    texts = [rule.text for rule in read_as(changed(name, changes), engine, flags).rules]
    assert len([said for said in texts if text in said]) == 1, texts


@pytest.mark.parametrize(
    "engine, flag, variable",
    [("vllm", "--max-model-len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
     ("sglang", "--context-length", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")],
)  # fmt: skip
def test_a_longer_length_than_the_config_declares_stops_an_engine_unless_it_is_allowed(
    engine: str, flag: str, variable: str
) -> None:
    """Qwen3-8B declares 40,960 positions."""
    config = configs()[QWEN]
    for length in (100, 40_960):
        assert read_as(config, engine, {flag: length}).length == length
    for allowed in ({}, {variable: "0"}):
        with pytest.raises(ValueError, match=f"{flag} is 40961, above the 40960 .* or set {variable}=1"):
            read_as(config, engine, {flag: 40_961, **allowed})
    for word in ("1", "true"):
        assert read_as(config, engine, {flag: 40_961, variable: word}).length == 40_961


def test_mrope_of_vllm_is_given_a_quarter_of_the_original_length() -> None:
    """vllm 0.33.0, mrope.py: YaRN's range is taken at four times the original length of the rope parameters."""
    name = "Qwen/Qwen2-VL-2B-Instruct"
    made = plan(configs()[name], length=131_072, engine="vllm")
    assert made.verdict == "right" and made.settings is not None
    rope = made.settings.flags["--hf-overrides"]["text_config"]["rope_parameters"]
    assert (rope["original_max_position_embeddings"], rope["factor"]) == (32_768 // 4, 4.0)
    assert isinstance(made.spec.scaling, YaRN) and made.spec.scaling.original_max_position == 32_768
    odd = plan({**configs()[name], "max_position_embeddings": 32_770}, length=131_072, original=32_770, engine="vllm")
    assert "at 4 x a whole original length, not 32770" in odd.refused


def test_tensorrt_llm_gets_the_words_of_transformers_4() -> None:
    """Its transformers 4.56 knows rope_theta and rope_scaling; a bare config declares neither."""
    config = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    made = plan(config, length=524_288, engine="tensorrt-llm", method="linear")
    assert made.settings is not None and made.settings.config is not None
    written = made.settings.config
    assert "rope_parameters" not in written
    assert (written["rope_theta"], written["max_position_embeddings"]) == (10_000.0, 524_288)
    assert {**written["rope_scaling"], "type": None} == {"rope_type": "linear", "factor": 4.0, "type": None}
    ntk = plan(config, length=524_288, engine="tensorrt-llm", method="ntk").settings
    assert ntk is not None and ntk.config is not None
    assert ntk.config["rope_theta"] == pytest.approx(1e4 * 4 ** (64 / 62), rel=1e-9)
    assert ntk.config.get("rope_scaling") is None and "rope_parameters" not in ntk.config


def test_alpha_of_hunyuan_is_the_factor_of_a_static_ntk() -> None:
    """vllm 0.33.0, get_rope: with alpha, dynamic is DynamicNTKAlphaRotaryEmbedding: base * alpha ** (d / (d - 2))."""
    rope = {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 1e4}
    (spec,) = read_as(LLAMA, "vllm", hf(rope_parameters=rope)).model.distinct
    base = 1e4 * 1000.0 ** (64 / 62)
    assert float(spec.inv_freq()[-1]) == pytest.approx(base ** (-62 / 64), rel=1e-9)


@pytest.mark.parametrize("top", [{}, {"rope_theta": 5e5}])
@pytest.mark.parametrize("length", [8192, 32_768])
def test_rope_parameters_reach_tensorrt_llm_in_the_words_of_transformers_4(top: dict[str, Any], length: int) -> None:
    config = {**LLAMA, **top, "max_position_embeddings": 8192}
    config = {key: value for key, value in config.items() if key != "rope_scaling"}
    config = {**config, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    config = config if top else {key: value for key, value in config.items() if key != "rope_theta"}
    made = plan(config, length=length, engine="tensorrt-llm", method="linear" if length > 8192 else "auto")
    assert made.verdict == "right" and made.settings is not None
    if written := made.settings.config:
        assert "rope_parameters" not in written and written["rope_theta"] == 5e5
        assert written["rope_scaling"] == ({"rope_type": "linear", "factor": 4.0} if length > 8192 else None)
    else:
        assert top and length == 8192  # its rope_theta is read as it is


def test_a_share_in_rope_parameters_is_written_above_them_for_tensorrt_llm() -> None:
    phi3 = {"model_type": "phi3", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1,
            "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}  # fmt: skip
    written = plan(phi3, length=4096, engine="tensorrt-llm").settings
    assert written is not None and written.config is not None
    assert (written.config["partial_rotary_factor"], written.config["rope_scaling"]) == (0.5, None)


def test_a_factor_that_a_key_of_the_file_carries_is_not_said_to_be_unread() -> None:
    """llama.cpp reads rope.scaling.attn_factor (llama-model.cpp), which takes the place of YaRN's own factor."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "attention_factor": 1.3}
    config = {**LLAMA, "max_position_embeddings": 32_768, "rope_scaling": rope}
    made = plan(config, length=65_536, engine="llama.cpp")
    assert made.settings is not None and made.settings.gguf is not None and made.reading is not None
    assert made.settings.gguf["rope.scaling.attn_factor"] == pytest.approx(1.3 / (1 + 0.1 * math.log(8)))
    assert not any("attention_factor" in str(said) for said in (*made.warnings, *made.reading.rules))
    assert any("attention_factor is not read" in rule.text for rule in read_as(config, "llama.cpp").rules)


def test_a_factor_of_one_is_no_scaling_of_tensorrt_llm() -> None:
    """It rotates as without; a page beside the model's own code names no scaling that does nothing."""
    config = {**LLAMA, "rope_scaling": {"type": "linear", "factor": 1.0}}
    assert [spec.scaling for spec in read_as(config, "tensorrt-llm").model.distinct] == [None]


@pytest.mark.parametrize("engine, flag", [("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")])
def test_an_overridden_length_is_the_declared_one_of_the_reading(engine: str, flag: str) -> None:
    reading = read_as(configs()[QWEN], engine, {flag: {"max_position_embeddings": 50_000}})
    assert (reading.length, reading.model.max_position) == (50_000, 50_000)
    assert read_as(configs()[QWEN], engine).model.max_position == 40_960


def test_olmo_3_in_sglang_has_one_dictionary_for_all_layers() -> None:
    """0.5.23, configs/olmo3.py and models/olmo2.py: full layers by the flat dictionary, windowed ones by its base.

    An override by kind of layer is merged beside the flat keys; get_rope then has a dictionary in its cache's key, and
    stops.
    """
    config = configs()["allenai/Olmo-3.1-32B"]
    by_kind = {"full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 16.0}}
    with pytest.raises(ValueError, match=r"full_attention stops SGLang.*olmo3\.py.*state it flat"):
        read_as(config, "sglang", {"--json-model-override-args": {"rope_parameters": by_kind}})
    made = plan(config, length=131_072, engine="sglang")
    assert made.settings is not None and made.reading is not None
    written = made.settings.flags["--json-model-override-args"]["rope_parameters"]
    assert (written["factor"], written["rope_theta"]) == (16.0, 5e5)
    near, far = made.reading.model.distinct
    assert (near.scaling, near.base) == (None, 5e5)
    assert far.attention_factor(131_072) == pytest.approx(0.1 * math.log(16) + 1)
