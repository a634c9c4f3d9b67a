"""Composite configs: their parts, which one is read, and what is said of the others."""

from typing import Any

import pytest

from phasor.models.configs import ModelRotary, Refused, read_config, read_parts

TINY = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def test_every_part_is_read_or_explained() -> None:
    source = {
        "model_type": "qwen3_omni_moe",
        "thinker_config": {
            "model_type": "qwen3_omni_moe_thinker",
            "audio_config": {"model_type": "qwen3_omni_moe_audio_encoder", "d_model": 8},
            "vision_config": {"model_type": "qwen3_omni_moe_vision_encoder"},
            "text_config": {"model_type": "qwen3_omni_moe_text", **TINY, "head_dim": 128},
        },
        "talker_config": {
            "text_config": {"model_type": "qwen3_omni_moe_talker_text", **TINY},
            "code_predictor_config": {"model_type": "qwen3_omni_moe_talker_code_predictor", **TINY},
        },
        "code2wav_config": TINY,
        "unheard_of_config": {"model_type": "unheard", **TINY},
    }
    found = read_parts(source)
    rotates = [path for path, part in found.items() if isinstance(part, ModelRotary)]
    assert rotates == [
        "thinker_config.vision_config", "thinker_config.text_config", "talker_config.text_config",
        "talker_config.code_predictor_config", "code2wav_config",
    ]  # fmt: skip
    assert all(isinstance(part, str) or part.part == path for path, part in found.items())
    assert str(found[""]).startswith("no rotary: this config only holds thinker_config")
    assert str(found["talker_config"]).startswith("no rotary: talker_config only holds talker_config.text_config")
    assert str(found["thinker_config.audio_config"]).startswith("no rotary: qwen3_omni_moe_audio_encoder has no")
    assert str(found["unheard_of_config"]).startswith("not read: model_type of unheard_of_config 'unheard' is not")


@pytest.mark.parametrize(
    "source, part",
    [
        ({"model_type": "colpali", "vlm_config": {"model_type": "paligemma", "text_config": {"model_type": "gemma"}}},
         "vlm_config.text_config"),
        ({"model_type": "t5gemma", "encoder": {"model_type": "t5_gemma_module"},
          "decoder": {"model_type": "t5_gemma_module"}}, "decoder"),
        ({"model_type": "dia", "encoder_config": {"model_type": "dia_encoder"},
          "decoder_config": {"model_type": "dia_decoder"}}, "decoder_config"),
        ({"model_type": "blt", "patcher_config": {"model_type": "blt_patcher"},
          "global_config": {"model_type": "blt_global_transformer"}}, "global_config"),
        ({"model_type": "sam3_vision_model", "backbone_config": {"model_type": "sam3_vit_model"}}, "backbone_config"),
        ({"model_type": "moshi", "audio_encoder_config": {"model_type": "mimi"}}, ""),
        ({"model_type": "csm", "depth_decoder_config": {"model_type": "csm_depth_decoder_model"}}, ""),
    ],
)  # fmt: skip
def test_the_part_that_is_read_when_none_is_named(source: dict[str, Any], part: str) -> None:
    assert read_config(source).part == part


def test_a_text_model_without_rotary_is_not_replaced_by_another_part() -> None:
    source = {"model_type": "inkling2", "text_config": {"model_type": "inkling2_text"},
              "vision_config": {"model_type": "inkling2_vision"}}  # fmt: skip
    words = r"inkling2_text uses a distance bias .*; other parts may rotate: part='vision_config'$"
    with pytest.raises(ValueError, match=words):
        read_config(source)
    assert read_config(source, part="vision_config").part == "vision_config"


def test_a_frame_has_nothing_to_read() -> None:
    source = {"model_type": "llava", "text_config": {"model_type": "llama", **TINY}}
    with pytest.raises(
        ValueError, match=r"^this config only holds text_config; other parts may rotate: part='text_config'$"
    ):
        read_config(source, part="")
    assert read_config({"model_type": "llava", **TINY}).part == ""  # an old flat config is the text model itself


@pytest.mark.parametrize("name", ["gemma3", "gemma3n", "gemma4", "llama4", "molmo2", "hrm"])
def test_text_keys_at_the_top_of_a_composite_model_are_those_of_its_text_model(name: str) -> None:
    """As the first files of Gemma 3 and Llama 4 have them: no row is called by the name of the whole."""
    flat, text = (read_config({"model_type": word, **TINY}) for word in (name, f"{name}_text"))
    assert flat.layers == text.layers and flat.layer_types == text.layer_types


def test_parameters_of_another_part_are_no_contradiction() -> None:
    """BLT has parameters beside its parts that its code never reads; CSM's are of its own layers."""
    outer = {"rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"}}
    patcher = {"model_type": "blt_patcher", "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"}}
    blt = {"model_type": "blt", **outer, "patcher_config": patcher}
    assert read_config(blt, part="patcher_config").layers[0].base == 10_000.0  # type: ignore[union-attr]
    depth = {"model_type": "csm_depth_decoder_model", "rope_theta": 1e6}
    csm = {"model_type": "csm", **outer, "depth_decoder_config": depth}
    assert read_config(csm, part="depth_decoder_config").layers[0].base == 1e6  # type: ignore[union-attr]
    assert read_config(csm).layers[0].base == 5e5  # type: ignore[union-attr]


def test_a_tower_is_told_by_its_key_when_it_has_no_name() -> None:
    """Qwen2-VL's published configs: a vision_config without model_type, or with that of the whole model."""
    for vision in ({"depth": 2}, {"depth": 2, "model_type": "qwen2_vl"}):
        source = {"model_type": "qwen2_vl", **TINY, "head_dim": 128, "vision_config": {**vision, "hidden_size": 64}}
        found = read_parts(source)
        assert len(found[""].layers) == 2 and len(found["vision_config"].layers) == 2  # type: ignore[union-attr]
        assert found["vision_config"].layers[0].axes.count == 2  # type: ignore[union-attr]


def test_a_part_whose_keys_are_not_understood_is_not_read() -> None:
    source = {"model_type": "llava", "text_config": {"model_type": "llama", **TINY, "rope_twist": 3}}
    assert str(read_parts(source)["text_config"]).startswith("not read: text_config.rope_twist is 3, but the code")


@pytest.mark.parametrize(("name", "parts"), [("glm46v", "text_config, vision_config"), ("qwen2_audio", "text_config")])
def test_a_composite_without_its_parts_is_not_said_to_rotate_nothing(name: str, parts: str) -> None:
    """Its class fills in a text model, of sizes of its own."""
    with pytest.raises(Refused, match=rf"^{name} rotates in {parts}, and this config holds no part; give the whole"):
        read_config({"model_type": name})
