"""Literal configs, one for each spelling of the same thing. Expected values are the models' published ones."""

import math
from typing import Any

import pytest

from phasor import RotarySpec
from phasor.models.configs import read_config
from phasor.rotary.axes import InterleavedSections, OneAxis, Sections
from phasor.rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, NTKFixed, Proportional, SteppedNTK, YaRN

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "max_position_embeddings": 128}


def config(model_type: str = "llama", **keys: Any) -> dict[str, Any]:
    return {"model_type": model_type, **SMALL, **keys}


def only(source: dict[str, Any]) -> RotarySpec:
    (spec,) = read_config(source).distinct
    return spec


@pytest.mark.parametrize(
    "keys, base",
    [
        ({"rope_theta": 500_000}, 500_000.0),
        ({"rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"}}, 500_000.0),
        ({"rope_theta": 500_000, "rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"}}, 500_000.0),
        ({"rope_scaling": None}, 10_000.0),  # LlamaConfig's own default
        ({}, 10_000.0),
    ],
)
def test_base(keys: dict[str, Any], base: float) -> None:
    assert only(config(**keys)) == RotarySpec(head_dim=16, base=base)


def test_base_of_chatglm_is_10000_times_rope_ratio() -> None:
    source = config("chatglm", rope_ratio=500, kv_channels=16, original_rope=True)
    assert only(source) == RotarySpec(head_dim=16, rotary_dim=8, base=5_000_000.0, interleaved=True)


@pytest.mark.parametrize(
    "spelling", [{"type": "linear"}, {"rope_type": "linear"}, {"type": "linear", "rope_type": "linear"}]
)
@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_linear(spelling: dict[str, Any], place: str) -> None:
    assert only(config(**{place: {**spelling, "factor": 4.0}})).scaling == Linear(4.0)


def test_the_same_dictionary_in_both_places_is_fine() -> None:
    both = {"rope_type": "linear", "factor": 4.0}
    assert only(config(rope_scaling=both, rope_parameters={**both, "rope_theta": 10_000.0})).scaling == Linear(4.0)


def test_dynamic_starts_at_max_position_embeddings() -> None:
    assert only(config(rope_scaling={"type": "dynamic", "factor": 2.0})).scaling == DynamicNTK(2.0, 128)


def test_dynamic_with_alpha_is_a_fixed_ntk_in_hunyuan() -> None:
    rope = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0}
    model = read_config(config("hunyuan_v1_dense", rope_scaling=rope, use_rotary_pos_emb=True, attention_head_dim=16))
    assert next(iter(model.distinct)).scaling == NTK(1000.0)
    assert "no effect" in model.sources["rope_scaling.beta_fast"]
    with pytest.raises(ValueError, match=r"rope_scaling\.alpha is not understood: llama with dynamic scaling"):
        read_config(config(rope_scaling=rope))


@pytest.mark.parametrize("truncate", [False, None])  # transformers takes a stated null for false
def test_yarn(truncate: bool | None) -> None:
    rope = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, "beta_fast": 16}
    assert only(config(rope_scaling=rope)).scaling == YaRN(16.0, 64, beta_fast=16)
    rope["truncate"] = truncate
    assert only(config(rope_scaling=rope)).scaling == YaRN(16.0, 64, beta_fast=16, truncate=False)


def test_a_spelling_of_one_family_is_not_taken_for_another() -> None:
    rope = {"type": "deepseek_yarn", "factor": 16.0, "original_max_position_embeddings": 64}
    assert only({**config("deepseek_v3"), "rope_scaling": rope}).scaling == YaRN(16.0, 64)
    with pytest.raises(ValueError, match="'deepseek_yarn', which is none of those that the code of llama knows"):
        read_config(config(rope_scaling=rope))


def test_yarn_factor_may_follow_from_the_lengths() -> None:
    scaling = only(config(rope_scaling={"type": "yarn", "original_max_position_embeddings": 64})).scaling
    assert scaling == YaRN(2.0, 64)


def test_yarn_attention_factor_is_final() -> None:
    rope = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, "attention_factor": 1.0}
    assert only(config(rope_scaling=rope)).attention_factor() == 1.0


def test_truncate_inside_a_layer_types_parameters_is_refused() -> None:
    """transformers 5.23 reads it from the outer dictionary, where it is not, and truncates: no way is safe to pick."""
    full = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32,
            "truncate": False}  # fmt: skip
    rope = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    source = config("gemma3_text", head_dim=16, rope_parameters=rope, sliding_window_pattern=2)
    with pytest.raises(ValueError, match=r"full_attention\.truncate is False, but transformers does not"):
        read_config(source)
    full["truncate"] = True
    assert [s.scaling for s in read_config(source).distinct] == [None, YaRN(4.0, 32)]


def test_llama3() -> None:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}  # fmt: skip
    assert only(config(rope_scaling=rope)).scaling == Llama3(8.0, 1.0, 4.0, 64)


@pytest.mark.parametrize("word", ["su", "longrope", "yarn"])  # all three name LongRoPE in Phi-3's history
@pytest.mark.parametrize("inside", [True, False])
def test_longrope(word: str, inside: bool) -> None:
    rope: dict[str, Any] = {"type": word, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    outer = {} if inside else {"original_max_position_embeddings": 32}
    rope |= {"original_max_position_embeddings": 32} if inside else {}
    scaling = only(config("phi3", rope_scaling=rope, **outer)).scaling
    assert scaling == LongRoPE((1.0,) * 8, (4.0,) * 8, 32, factor=4.0)


def test_phimoe_keeps_its_long_factors_and_both_magnitudes() -> None:
    """transformers 5.23 never uses long_factor for this family; the model's own code does."""
    rope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "short_mscale": 1.25,
            "long_mscale": 1.5, "original_max_position_embeddings": 32}  # fmt: skip
    spec = only(config("phimoe", rope_scaling=rope, rope_theta=10_000.0))
    assert (spec.attention_factor(32), spec.attention_factor(33)) == (1.25, 1.5)
    assert spec.inv_freq(33)[0].item() == 0.25


def test_ntk_of_the_gte_models_is_sus_corrected_form() -> None:
    source = config("new", rope_scaling={"type": "ntk", "factor": 8.0}, position_embedding_type="rope")
    assert only(source).scaling == NTKFixed(8.0)
    with pytest.raises(ValueError, match="'ntk', which is none of those that the code of llama knows"):
        read_config(config(rope_scaling={"type": "ntk", "factor": 8.0}))


def test_proportional_keeps_the_width() -> None:
    rope = {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
    source = config("gemma4_text", head_dim=16, global_head_dim=32, rope_parameters=rope)
    model = read_config(source)
    assert model.layers[0] == RotarySpec(head_dim=16)
    assert model.layers[3] == RotarySpec(head_dim=32, base=1e6, scaling=Proportional(0.25))  # the last one is full


def test_qwen1_steps_from_seq_length() -> None:
    keys = {"kv_channels": 16, "rotary_emb_base": 10_000, "rotary_pct": 1.0, "seq_length": 64}
    model = read_config(config("qwen", **keys, use_dynamic_ntk=True, use_logn_attn=True))
    assert next(iter(model.distinct)).scaling == SteppedNTK(64)
    assert any("log(position)" in note for note in model.notes)
    assert only(config("qwen", **keys, use_dynamic_ntk=False, use_logn_attn=False)).scaling is None


@pytest.mark.parametrize(
    "model_type, keys, rotary_dim",
    [
        ("phi", {"partial_rotary_factor": 0.5}, 8),
        ("phi", {}, 8),  # PhiConfig's default 0.5
        ("gpt_neox", {"rotary_pct": 0.25}, 4),
        ("gpt_neox", {}, 4),
        ("gptj", {"rotary_dim": 8}, 8),
        ("minimax_m2", {"rotary_dim": 8, "head_dim": 16}, 8),
        ("minimax_m2", {"rotary_dim": 8, "partial_rotary_factor": 0.5, "head_dim": 16}, 8),
        ("glm4", {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10_000.0}, "head_dim": 16}, 8),
    ],
)
def test_partial(model_type: str, keys: dict[str, Any], rotary_dim: int) -> None:
    spec = only(config(model_type, **keys))
    assert (spec.head_dim, spec.rotary_dim, spec.trailing) == (16, rotary_dim, False)


def test_a_family_that_turns_all_channels_refuses_a_partial_factor() -> None:
    assert only(config(partial_rotary_factor=1.0)).rotary_dim == 16
    with pytest.raises(ValueError, match=r"partial_rotary_factor is 0\.5, but the code of llama does not read it"):
        read_config(config(partial_rotary_factor=0.5))
    with pytest.raises(ValueError, match="partial_rotary_factor makes 8 of 16 channels rotate, but the code of llama"):
        read_config(config(rope_scaling={"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}))


@pytest.mark.parametrize(
    "form", [{"type": "mrope"}, {"rope_type": "default"}, {"rope_type": "default", "type": "mrope"}]
)
def test_mrope(form: dict[str, Any]) -> None:
    rope = {**form, "mrope_section": [3, 3, 2]}
    assert only(config("qwen2_vl", rope_scaling=rope)).axes == Sections((3, 3, 2))
    if form == {"rope_type": "default"}:  # transformers has no function for "mrope" here
        assert only(config("qwen3_vl_text", head_dim=16, rope_scaling=rope)).axes == InterleavedSections((3, 3, 2))
    assert only(config("llama", rope_scaling=rope)).axes == Sections((3, 3, 2))  # drafts for Qwen2-VL


def test_mrope_defaults_stand_in_the_code() -> None:
    model = read_config({**config("qwen2_vl"), "hidden_size": 512})
    assert next(iter(model.distinct)).axes == Sections((16, 24, 24))
    assert "not in config" in model.sources["mrope_section"]


def test_mrope_that_the_family_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="mrope_section is not understood: qwen3 with no scaling uses"):
        read_config(config("qwen3", head_dim=16, rope_scaling={"type": "default", "mrope_section": [2, 3, 3]}))
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True}
    with pytest.raises(ValueError, match="mrope_interleaved is True, but the code of qwen2_vl_text has contiguous"):
        read_config(config("qwen2_vl", rope_scaling=rope))


def test_two_bases_by_layer_type_in_every_spelling() -> None:
    local_global = [(1e4, 16), (1e6, 16)]
    old = config("gemma3_text", head_dim=16, rope_theta=1e6, rope_local_base_freq=1e4, sliding_window_pattern=2)
    assert [(s.base, s.head_dim) for s in read_config(old).distinct] == local_global
    old = config("modernbert", global_rope_theta=1e6, local_rope_theta=1e4, global_attn_every_n_layers=3)
    assert [s.base for s in read_config(old).layers if s] == [1e6, 1e4, 1e4, 1e6]
    kinds = {"full_attention": {"rope_theta": 1e6, "partial_rotary_factor": 0.5, "rope_type": "default"}}
    kinds["sliding_attention"] = {**kinds["full_attention"], "rope_theta": 1e4}
    told = config(
        "mimo_v2_flash", head_dim=16, swa_head_dim=16, hybrid_layer_pattern=[0, 1, 1, 0], rope_parameters=kinds
    )
    assert [(s.base, s.rotary_dim) for s in read_config(told).layers if s] == [(1e6, 8), (1e4, 8), (1e4, 8), (1e6, 8)]
    words = ["sliding_attention", "full_attention"] * 2
    new = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    source = config("gemma3_text", head_dim=16, layer_types=words, rope_parameters=new)
    assert [s.base for s in read_config(source).layers if s] == [1e4, 1e6, 1e4, 1e6]


def test_gemma3_scales_the_full_layers_only() -> None:
    rope = {"rope_type": "linear", "factor": 8.0}
    layers = read_config(config("gemma3_text", head_dim=16, rope_scaling=rope, sliding_window_pattern=2)).layers
    assert [s.scaling for s in layers if s] == [None, Linear(8.0), None, Linear(8.0)]


def test_bases_listed_per_layer() -> None:
    words = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    lists = {"rope_theta": [5e6, 1e4, 1e4, 5e6], "partial_rotary_factors": [0.5, 1, 1, 0.5], "layer_types": words}
    source = config("step3p5", head_dim=16, **lists)
    layers = read_config(source).layers
    assert [(s.base, s.rotary_dim) for s in layers if s] == [(5e6, 8), (1e4, 16), (1e4, 16), (5e6, 8)]
    source = config("granite_swa", layer_rope_theta=[1e4, 0, 1e4, 5e5])  # 0: this layer does not rotate
    assert [s and s.base for s in read_config(source).layers] == [1e4, None, 1e4, 5e5]


def rotates(source: dict[str, Any]) -> list[bool]:
    return [spec is not None for spec in read_config(source).layers]


def test_llama4_lists_the_layers_that_do_rotate() -> None:
    llama4 = config("llama4_text", head_dim=16)
    assert rotates({**llama4, "no_rope_layers": [1, 0, 1, 1]}) == [True, False, True, True]
    assert rotates({**llama4, "no_rope_layers": []}) == [True, True, True, False]  # empty: every 4th does not
    assert rotates({**llama4, "no_rope_layer_interval": 2}) == [True, False, True, False]
    assert read_config(llama4).layer_types[2:] == ("chunked_attention", "full_attention")
    # without a size of chunks, Llama4TextConfig says full_attention since transformers 5.24
    assert read_config({**llama4, "attention_chunk_size": None}).layer_types == ("full_attention",) * 4
    assert rotates({**llama4, "attention_chunk_size": None}) == [True, True, True, False]


def test_every_fourth_layer_of_smollm3_does_not_rotate() -> None:
    assert rotates({**config("smollm3"), "num_hidden_layers": 8}) == [True, True, True, False] * 2
    assert rotates({**config("smollm3"), "no_rope_layer_interval": 2}) == [True, False] * 2


@pytest.mark.parametrize("model_type", ["cohere2", "exaone4"])
def test_full_attention_layers_without_rotation(model_type: str) -> None:
    keys = config(model_type, sliding_window=32, head_dim=16)
    assert rotates(keys) == [True, True, True, False]
    pattern = "LLLG" if model_type == "exaone4" else 2
    assert rotates({**keys, "sliding_window_pattern": pattern}) == [True, pattern != 2, True, False]


def test_exaone4_without_window_rotates_everywhere() -> None:
    assert rotates(config("exaone4", sliding_window=None)) == [True] * 4


def test_layers_without_attention_have_no_spec() -> None:
    words = ["conv", "full_attention", "conv", "full_attention"]
    model = read_config(config("lfm2", layer_types=words))
    assert model.layer_types == tuple(words) and [s is not None for s in model.layers] == [False, True, False, True]
    assert rotates(config("qwen3_next", head_dim=16)) == [False, False, False, True]
    assert rotates(config("mllama_text_model", cross_attention_layers=[1])) == [True, False, True, True]


def test_latent_attention_turns_the_last_channels() -> None:
    keys = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "head_dim": 4}
    spec = only(config("deepseek_v3", **keys))
    assert spec == RotarySpec(head_dim=12, rotary_dim=4, interleaved=True, permuted=True, trailing=True)
    assert only(config("deepseek_v2", **keys)) == spec.replace(permuted=False, tables="float32")  # complex numbers
    assert only(config("deepseek_v3", **keys, rope_interleave=False)).interleaved is False
    assert only(config("minicpm3", **keys)).interleaved is False
    with pytest.raises(ValueError, match="rope_interleave is False, but the code of glm_moe_dsa does not read it"):
        read_config(config("glm_moe_dsa", **keys, rope_interleave=False))


def test_deepseek_multiplies_the_softmax_scale() -> None:
    """DeepSeek-V3's config: mscale_all_dim 1 and factor 40, so (0.1 ln 40 + 1) squared, and no factor on cos."""
    rope = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}
    model = read_config(config("deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=4, rope_scaling=rope))
    assert model.softmax_factor == pytest.approx((0.1 * math.log(40) + 1) ** 2, rel=1e-15)
    assert next(iter(model.distinct)).attention_factor() == 1.0
    assert read_config(config(rope_scaling=rope)).softmax_factor == 1.0  # Llama's code has no such step


@pytest.mark.parametrize(
    "names",
    [
        {"n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 128},
        {"d_model": 64, "n_heads": 4, "n_layers": 4, "max_seq_len": 128},
        {"hidden_size": 64, "num_heads": 4, "num_layers": 4, "max_position_embeddings": 128},
    ],
)
def test_names_of_sizes(names: dict[str, Any]) -> None:
    """Model code from elsewhere has them all; Llama's has its own, and no other is replaced by a default in silence."""
    model = read_config({"model_type": "internlm2", **names})
    assert (len(model.layers), model.num_heads, model.num_kv_heads, model.max_position) == (4, 4, 4, 128)
    assert model.layers[0] == RotarySpec(head_dim=16)
    with pytest.raises(ValueError, match="but the code of LlamaConfig reads num_hidden_layers, which is missing"):
        read_config({"model_type": "llama", **names})


def test_dbrx_keeps_its_base_in_attn_config() -> None:
    """transformers 5.23 loses it and rotates with base 10000."""
    source = {"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 128,
              "attn_config": {"rope_theta": 500_000, "kv_n_heads": 2}}  # fmt: skip
    assert only(source).base == 500_000.0 and read_config(source).num_kv_heads == 2


def test_flat_glm4v_reads_its_sections_and_its_partial_factor() -> None:
    """transformers 5.23 replaces the missing text_config by a default one with 64 pairs."""
    source = {**config("glm4v"), "hidden_size": 256, "partial_rotary_factor": 0.5,
              "rope_scaling": {"type": "default", "mrope_section": [4, 6, 6]}}  # fmt: skip
    assert only(source) == RotarySpec(head_dim=64, rotary_dim=32, interleaved=True, axes=Sections((4, 6, 6)))


def test_the_text_part_is_read_and_others_are_offered() -> None:
    text = {**SMALL, "head_dim": 16, "rope_theta": 1e6, "rope_scaling": {"mrope_section": [3, 3, 2]}}
    talker = {"model_type": "qwen3_omni_moe_talker", "text_config": dict(text)}
    thinker = {
        "model_type": "qwen3_omni_moe_thinker",
        "audio_config": {"model_type": "whisper"},
        "text_config": {"model_type": "qwen3_omni_moe_text", **talker["text_config"]},
    }  # type: ignore[dict-item]
    source = {"model_type": "qwen3_omni_moe", "thinker_config": thinker, "talker_config": talker}
    model = read_config(source)
    assert model.part == "thinker_config.text_config" and "talker_config.text_config" in model.parts
    assert "thinker_config.text_config.rope_theta" in model.sources
    assert read_config(source, part="talker_config.text_config").layers == model.layers
    with pytest.raises(ValueError, match=r"whisper uses sinusoidal positions.*may rotate: part='thinker_config.text_"):
        read_config(source, part="thinker_config.audio_config")
    with pytest.raises(ValueError, match=r"part must be one of .*did you mean thinker_config.text_config"):
        read_config(source, part="thinker_config.text_confg")


def test_a_key_above_the_part_must_repeat_it() -> None:
    inner = config("llama4_text", head_dim=16, rope_theta=5e5)
    assert only_bases({"model_type": "llama4", "text_config": inner, "rope_theta": 5e5}) == {5e5}
    with pytest.raises(ValueError, match=r"^rope_theta is .*, but the code reads text_config.rope_theta, "):
        read_config({"model_type": "llama4", "text_config": inner, "rope_theta": 1e4})
    with pytest.raises(ValueError, match=r"rope_ratio is 2, but text_config, .* has no such key"):
        read_config({"model_type": "llama4", "text_config": inner, "rope_ratio": 2})


def only_bases(source: dict[str, Any]) -> set[float]:
    return {spec.base for spec in read_config(source).distinct}


def test_one_axis_and_float32_angles() -> None:
    model = read_config(config())
    assert next(iter(model.distinct)).axes == OneAxis()
    assert {s.angles for s in model.with_angles("float32").distinct} == {"float32"}
