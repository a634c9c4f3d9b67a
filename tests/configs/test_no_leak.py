"""A key counts only where the code of the family reads it, and nothing that a config says is lost without a word.

Expected values are those of transformers 5.23's own classes, read in their source or built where that is cheap.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor import read_config, read_parts
from phasor.configs import read_rule
from phasor.rotary.scaling import Linear, YaRN

SMALL = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 4}
LLAMA = {"model_type": "llama", **SMALL, "rope_theta": 10_000.0}
YARN4 = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


# Keys of one family in the config of another


@pytest.mark.parametrize(
    ("model_type", "keys"),
    [
        ("llama", {"full_attn_idxs": [1]}),
        ("llama", {"swa_head_dim": 32, "layer_types": ["sliding_attention"] * 4}),
        ("llama", {"layer_types": ["full_attention", "conv"] * 2}),
        ("llama", {"use_3d_rope": True}),
        ("llama", {"rotary_emb_base": 500_000.0}),
        ("llama", {"kv_channels": 64}),
        ("llama", {"alibi": True}),
        ("llama", {"rope_ratio": 0.5}),
        ("llama", {"mla_use_nope": True}),
        ("phi3", {"rotary_pct": 0.5}),
        ("gpt_neox", {"rope_theta": 500_000.0}),
        ("gpt_neox", {"partial_rotary_factor": 0.5}),
        ("gptj", {"rotary_dim": 64, "rope_is_neox_style": True}),
        ("gptj", {"rotary_dim": 64, "rope_interleave": False}),
        ("llama", {"rope_is_neox_style": False}),
        ("gptj", {"rotary_dim": 64, "rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("gptj", {"rotary_dim": 64, "rope_theta": 500_000.0}),
        ("esm", {"position_embedding_type": "rotary", "rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("gemma3_text", {"swa_head_dim": 32}),
        ("gpt_oss", {"partial_rotary_factor": 0.5}),
        ("qwen3", {"use_dynamic_ntk": True}),
        ("llama", {"use_rope": False}),
        ("llama", {"is_neox_style": False}),
        ("codegen", {"partial_rotary_factor": 0.25}),
        ("mellum", {"partial_rotary_factor": 0.5}),
        ("neomme", {"partial_rotary_factor": 0.5}),
        ("diffusion_gemma_text", {"partial_rotary_factor": 0.5}),
        ("moonshine_streaming", {"partial_rotary_factor": 0.5}),
        ("deepseek_ocr2_text", {"head_dim": 64}),
        ("qwen", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
        ("chatglm", {"rope_theta": 5e5}),
        ("dinov3_vit", {"rope_parameters": {"rope_theta": 5e5}}),
        ("vjepa2", {"rope_parameters": {"rope_theta": 5e5}}),
        ("qwen3", {"layer_types": ["full_attention", "conv"] * 2}),
        ("gptj", {"rotary_dim": 64, "partial_rotary_factor": 0.25}),
    ],
)
def test_a_key_that_the_code_does_not_read_is_refused(model_type: str, keys: dict[str, Any]) -> None:
    base = {key: value for key, value in LLAMA.items() if key != "rope_theta"} | {"model_type": model_type}
    with pytest.raises(ValueError, match=r"does not read it|is not understood|does not have"):
        read_config({**base, **keys})


NEUTRAL: list[tuple[str, dict[str, Any]]] = [
    *(("llama", {key: False}) for key in (
        "use_mrope", "use_dynamic_ntk", "no_rope", "use_alibi", "use_yarn", "rotary_interleaved", "rope_interleave",
        "mrope_interleaved", "use_mem_rope", "alibi",
    )),
    ("qwen2", {"use_mrope": False}),  # Qwen2-Audio's text_config
    ("llama", {"use_rope": True}),
    ("llama", {"rope_type": "default"}),
    ("llama", {"no_rope_layers": []}),
    ("llama", {"rotary_percent": 1.0}),
    ("llama", {"rotary_pct": 1.0}),
    ("llama", {"rope_ratio": None}),
    ("nomic_bert", {"rotary_emb_fraction": 1.0}),
    ("llama", {"rotary_emb_base": 10_000}),  # what the code does anyway
    ("llama", {"kv_channels": 128}),
    ("gptj", {"rotary_dim": 64, "rope_is_neox_style": False}),
    ("gptj", {"rotary_dim": 64, "rope_interleave": True}),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "keys"), NEUTRAL)
def test_a_neutral_value_changes_nothing_and_is_told(model_type: str, keys: dict[str, Any]) -> None:
    plain = {**SMALL, "model_type": model_type, **{k: v for k, v in keys.items() if k == "rotary_dim"}}
    model = read_config({**plain, **keys})
    assert model == read_config(plain)
    told = [model.sources.get(key, "") for key, value in keys.items() if value is not None and key != "rotary_dim"]
    assert all("no effect" in text for text in told), model.sources


def test_a_length_may_be_written_as_a_float() -> None:
    assert read_config({**LLAMA, "max_position_embeddings": 4096.0}).max_position == 4096
    with pytest.raises(ValueError, match="max_position_embeddings must be an integer"):
        read_config({**LLAMA, "max_position_embeddings": 4096.5})


def test_a_slip_with_a_neutral_value_is_still_a_slip() -> None:
    with pytest.raises(ValueError, match=r"attention_facter is not understood.*did you mean attention_factor"):
        read_config({**LLAMA, "rope_scaling": {**YARN4, "attention_facter": 1.0}})
    with pytest.raises(ValueError, match=r"rope_thetas is 1\.0"):
        read_config({**LLAMA, "rope_thetas": 1.0})


# Two dictionaries about the same thing


@pytest.mark.parametrize(
    "source",
    [
        {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "nonsense", "rope_foo": 1},
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0},
         "rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}},
        {"model_type": "gemma4_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {"model_type": "olmo3", "rope_scaling": {"rope_type": "yarn", "factor": 8.0},
         "rope_parameters": {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e5}}},
        {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_theta": 1e6}},
        {**LLAMA, "rope_scaling": YARN4, "rope_parameters": {**YARN4, "beta_fast": 16}},
        {"model_type": "deepseek_v4", "rope_scaling": {**YARN4, "factor": 16.0},
         "rope_parameters": {"rope_theta": 1e4}},
    ],
)  # fmt: skip
def test_dictionaries_that_differ_are_refused(source: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rope_"):
        read_config(source)


def test_dictionaries_that_agree_are_one() -> None:
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    nested = {"full_attention": linear, "sliding_attention": {"rope_theta": 1e4}}
    gemma = {"model_type": "gemma3_text", "rope_parameters": nested}
    assert read_config({**gemma, "rope_scaling": linear}) == read_config(gemma)
    assert read_config(gemma).layers[5].scaling == Linear(8.0)  # type: ignore[union-attr]
    both = {**LLAMA, "rope_scaling": {"type": "linear", "factor": 8.0}}
    assert read_config({**both, "rope_parameters": {"rope_type": "linear", "factor": 8.0}}) == read_config(both)


def test_flat_yarn_of_deepseek_v4_keeps_its_yarn() -> None:
    """Its class takes a flat dictionary for the compressed layers, with the base from the top."""
    source = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "rope_parameters": {**YARN4, "factor": 16.0}}
    model = read_config(source)
    assert model.layers[2].scaling == YaRN(16.0, 32768, attention=1.0)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"the code takes compress_rope_theta"):
        read_config({**source, "rope_parameters": {**source["rope_parameters"], "rope_theta": 1e4}})


@pytest.mark.parametrize("model_type", ["llama4_text", "smollm3"])
def test_an_interval_under_a_name_that_no_code_reads(model_type: str) -> None:
    source = {"model_type": model_type, **SMALL}
    assert read_config({**source, "nope_layer_interval": 4}) == read_config(source)  # Llama 4's published configs
    with pytest.raises(ValueError, match="no_rope_layer_interval and nope_layer_interval contradict each other"):
        read_config({**source, "nope_layer_interval": 2})


def test_a_key_twice_in_one_object_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "rope_theta": 1e4, "inner": {"a": 1}, "rope_theta": 5e5}')
    with pytest.raises(ValueError, match="the key 'rope_theta' stands twice in one object; keep one"):
        read_config(file)


def test_a_dictionary_that_names_kinds_names_all_that_turn() -> None:
    """DeepSeek-V4's class reads main and compress together; other classes end in a KeyError, or take a default."""
    with pytest.raises(ValueError, match=r"rope_parameters: one of main and compress is missing"):
        read_config({"model_type": "deepseek_v4", "rope_parameters": {"compress": {"rope_theta": 5e5}}})
    with pytest.raises(ValueError, match=r"rope_parameters\.sliding_attention is missing"):
        read_config({"model_type": "gemma4_text", "rope_parameters": {"full_attention": {"rope_theta": 5e5}}})


def test_the_trained_length_beside_kinds_of_layers_is_not_read() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    with pytest.raises(ValueError, match=r"rope_scaling\.original_max_position_embeddings is missing"):
        read_config({"model_type": "gemma3_text", "original_max_position_embeddings": 1024, "rope_scaling": yarn})


def test_what_stands_beside_the_parts_of_a_frame_is_named() -> None:
    with pytest.raises(ValueError, match=r"vision_tower\.rope_theta is not understood"):
        read_config({"model_type": "llava", "text_config": LLAMA, "vision_tower": {"depth": 3, "rope_theta": 1e4}})


# Rules of single families


def test_null_for_a_kind_of_layer() -> None:
    """Gemma 3's class fills it with its default base; Beam's layers with full attention do not rotate by it."""
    nulls = {"full_attention": None, "sliding_attention": {"rope_theta": 7e3}}
    gemma = read_config({"model_type": "gemma3_text", "num_hidden_layers": 6, "rope_parameters": nulls})
    assert [spec.base for spec in gemma.distinct] == [7e3, 1e6]
    beam = read_config({"model_type": "beam", "num_hidden_layers": 6, "rope_parameters": nulls})
    assert beam.layers[5] is None and [spec.base for spec in beam.distinct] == [7e3]


GEMMA4 = ["gemma4_text", "gemma4_unified_text", "diffusion_gemma_text", "embedding_gemma2_text"]


@pytest.mark.parametrize("model_type", GEMMA4)
def test_gemma_4_reads_no_base_beside_its_dictionary(model_type: str) -> None:
    """Neither for its windows nor for the other layers: each kind has its own in ``rope_parameters``."""
    default = read_config({"model_type": model_type})
    assert {spec.base for spec in default.distinct} == {1e4, 1e6}
    with pytest.raises(ValueError, match=f"rope_theta is 20000.0, but the code of {model_type} does not read it"):
        read_config({"model_type": model_type, "rope_theta": 2e4})


@pytest.mark.parametrize("model_type", GEMMA4)
def test_the_last_layer_of_gemma_4_attends_to_everything(model_type: str) -> None:
    stated = {"model_type": model_type, "num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 3}
    model = read_config(stated)
    assert model.layer_types == ("sliding_attention", "sliding_attention", "full_attention")
    assert model.layers[2] != model.layers[1] and "the last layer" in model.sources["layer_types[2]"]
    derived = {"model_type": model_type, "num_hidden_layers": 4}
    assert read_config(derived).layer_types[3] == "full_attention"


def test_a_null_truncate_is_false_for_the_code() -> None:
    rope = {**YARN4, "rope_theta": 1e4}
    model = read_config({**LLAMA, "rope_parameters": {**rope, "truncate": None}})
    assert model == read_config({**LLAMA, "rope_parameters": {**rope, "truncate": False}})
    assert "as the code takes null" in model.sources["rope_parameters.truncate"]


def test_a_length_in_the_dictionary_is_checked() -> None:
    rope = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}
    with pytest.raises(ValueError, match=r"rope_parameters\.max_position_embeddings must be a finite number"):
        read_config({"model_type": "ministral3", "rope_parameters": {**rope, "max_position_embeddings": "10000"}})


def test_moonshine_has_the_scalings_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.moonshine.modeling_moonshine import MoonshineRotaryEmbedding

    for rope in ({"rope_type": "linear", "factor": 2.0}, {"rope_type": "yarn", "factor": 4.0,
                 "original_max_position_embeddings": 128}):  # fmt: skip
        config = transformers.MoonshineConfig(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.8, **rope})
        module = MoonshineRotaryEmbedding(config)
        (spec,) = read_config(config).with_angles("float32").distinct
        assert torch.equal(spec.inv_freq().float(), module.inv_freq)
        assert spec.attention_factor() == module.attention_scaling


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 1024},
        {"rope_type": "longrope", "short_factor": [1.0 + i / 10 for i in range(11)], "long_factor": [4.0] * 11,
         "original_max_position_embeddings": 1024, "factor": 4.0},
    ],
    ids=lambda rope: rope["rope_type"],
)  # fmt: skip
def test_an_odd_width_of_glm_4_moe_with_every_scaling(rope: dict[str, Any]) -> None:
    """4096 // 96 = 42 channels, half of them 21: the code forms 11 frequencies from exponents over 21."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeRotaryEmbedding

    config = transformers.Glm4MoeConfig(
        rope_parameters={"rope_theta": 10_000.0, "partial_rotary_factor": 0.5, **rope}, max_position_embeddings=2048
    )
    module = Glm4MoeRotaryEmbedding(config)
    (spec,) = read_config(config).with_angles("float32").distinct
    assert (spec.rotary_dim, spec.exponent_dim) == (22, 21)
    assert torch.equal(spec.inv_freq().float(), module.inv_freq)


def test_towers_of_clip_and_its_kin_do_not_rotate() -> None:
    for name in ("aimv2", "align", "siglip"):
        found = read_parts({"model_type": name, "text_config": {"model_type": f"{name}_text_model", **SMALL}})
        assert str(found["text_config"]).startswith("no rotary"), found


# Inner configs and the defaults that a composite class gives its parts


def test_every_inner_config_is_read_or_named() -> None:
    vt = {"vt_hidden_size": 1152, "vt_num_attention_heads": 16, "vt_num_hidden_layers": 2, "pos_emb_height": 64}
    kimi = read_parts({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}, "vision_config": vt})
    assert kimi["vision_config"].layers[0].head_dim == 72  # type: ignore[union-attr]
    later = read_parts({"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear"}, "vision_config": vt})
    assert str(later["vision_config"]).startswith("not read: model_type of vision_config is missing")
    text = {"model_type": "qwen2_5_vl_text", **SMALL}
    depth = read_parts({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": {"depth": 3}})
    assert len(depth["vision_config"].layers) == 3  # type: ignore[union-attr]
    empty = read_parts({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text"}, "vision_config": {}})
    assert len(empty["vision_config"].layers) == 27  # type: ignore[union-attr]
    unknown = read_parts({"model_type": "newcomer", "text_config": LLAMA, "image_config": {"stages": 3}})
    assert str(unknown["image_config"]).startswith("not read")


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [("voxtral", "llama", "text_config"), ("voxtral_realtime", "voxtral_realtime_text", "text_config"),
     ("glmasr", "llama", "text_config"), ("pe_audio", "modernbert", "text_config")],
)  # fmt: skip
def test_defaults_that_a_composite_class_gives_its_parts(name: str, text: str, key: str) -> None:
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    stated = {"model_type": name, key: {"model_type": text, "vocab_size": 1000}}
    theirs = getattr(CONFIG_MAPPING[name].from_dict(json.loads(json.dumps(stated))), key)
    model = read_config(stated, part=key)
    assert model == read_config({"model_type": name, key: theirs.to_dict()}, part=key)
    assert len(model.layers) == theirs.num_hidden_layers and model.num_heads == theirs.num_attention_heads
    assert any("what the class around it sets" in text for text in model.sources.values())


# What must be said aloud


def test_a_dictionary_without_a_base_says_which_one_is_assumed() -> None:
    qwen = {"model_type": "qwen3", "head_dim": 128, "rope_parameters": YARN4}
    (note,) = read_config(qwen).notes
    assert note == "rope_parameters states no rope_theta: base 10000 is assumed, Qwen3Config's default"
    assert read_config({**qwen, "rope_theta": 1e6}).notes == ()


@pytest.mark.parametrize("original", [1, 4096])
def test_lengths_that_contradict_each_other_get_a_note(original: int) -> None:
    rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": original}
    (note,) = read_config({**LLAMA, "max_position_embeddings": 2048, "rope_scaling": rope}).notes
    assert note.startswith("max_position_embeddings is 2048, which lies outside")
    rope["original_max_position_embeddings"] = 1024
    assert read_config({**LLAMA, "max_position_embeddings": 2048, "rope_scaling": rope}).notes == ()


def test_the_rule_of_positions_is_read_strictly() -> None:
    assert read_rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}}).rate == 2
    with pytest.raises(ValueError, match="token_per_second is not understood; did you mean tokens_per_second"):
        read_rule({"model_type": "qwen2_5_vl", "vision_config": {"token_per_second": 2}})
    with pytest.raises(ValueError, match="tokens_per_second must be a finite number"):
        read_rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": "2"}})
    with pytest.raises(ValueError, match="tokens_per_second is 2, where the code of qwen2_5_vl does not look for it"):
        read_rule({"model_type": "qwen2_5_vl", "tokens_per_second": 2})
    with pytest.raises(ValueError, match=r"text_config\.rope_scaling\.xdrope_section must be a list, got 5"):
        read_rule({"model_type": "hunyuan_vl", "text_config": {"rope_scaling": {"xdrope_section": 5}}})


@pytest.mark.parametrize("place", ["", "rope_scaling", "text_config", "above", "settings"])
def test_control_characters_never_reach_a_terminal(place: str) -> None:
    key = "rope_\x1b[31mtheta\x07"
    source: dict[str, Any] = {**LLAMA, "settings": {}, "rope_scaling": {}, "text_config": None}
    if place == "text_config":
        source = {"model_type": "llava", "text_config": {**LLAMA, key: 2.0}}
    elif place == "above":
        source = {"model_type": "llava", key: 2.0, "text_config": LLAMA}
    elif place:
        source[place] = {key: 2.0}
    else:
        source[key] = 2.0
    with pytest.raises(ValueError, match="rope_") as caught:
        read_config(source)
    assert str(caught.value).isprintable(), str(caught.value)


def test_mpt_with_rope_is_not_said_to_have_alibi() -> None:
    with pytest.raises(ValueError, match=r"attn_config\.rope is True: that rotation of mpt is not read"):
        read_config({"model_type": "mpt", "attn_config": {"rope": True}})
    with pytest.raises(ValueError, match="mpt uses ALiBi"):
        read_config({"model_type": "mpt", "attn_config": {"alibi": True}})
