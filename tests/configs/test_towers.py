"""Reading towers: what is told of them, spellings, refusals, names."""

from typing import Any

import pytest

from phasor.models.reading.tower import SequenceTower
from rows import TOWERS, read_tower, tower_of

pytest.importorskip("transformers")

from test_towers_bits import compared
from towers_theirs import config_of

ROTARY_WORD = {"position_embeddings_type": "rotary"}
CONFORMERS = ("seamless_m4t", "wav2vec2-bert", "wav2vec2-conformer")


def given(name: str, **keys: Any) -> dict[str, Any]:
    return {**(ROTARY_WORD if name in CONFORMERS else {}), **keys}


@pytest.mark.parametrize("name", sorted(TOWERS))
def test_every_default_is_told_in_the_sources(name: str) -> None:
    model, _ = read_tower(name, given(name), "a.part")
    told = [key for key, meaning in model.sources.items() if meaning.startswith("not in config:")]
    assert len(told) >= 3 and all(key.startswith("a.part.") for key in told)
    assert any(TOWERS[name].config in meaning for meaning in model.sources.values())
    assert model.part == "a.part" and model.model_type == name


def test_a_size_has_the_names_its_class_gives_it() -> None:
    for names in ({"depth": 3, "num_heads": 8}, {"num_hidden_layers": 3, "num_attention_heads": 8}):
        model, _ = read_tower("qwen2_5_vl_vision", {"hidden_size": 256, **names})
        assert (len(model.layers), model.num_heads, model.layers[0] and model.layers[0].head_dim) == (3, 8, 32)
    wide, _ = read_tower("qwen2_vl_vision", {"embed_dim": 640, "hidden_size": 1536})
    assert wide.layers[0] is not None and wide.layers[0].head_dim == 40  # hidden_size is that of its output
    with pytest.raises(ValueError, match="num_heads and num_attention_heads contradict each other: 8 and 4"):
        read_tower("qwen2_5_vl_vision", {"num_heads": 8, "num_attention_heads": 4})


def test_whisper_names_of_audio_encoders() -> None:
    names = {"d_model": 64, "encoder_attention_heads": 2, "encoder_layers": 3}
    model, _ = read_tower("voxtral_realtime_encoder", {**names, "head_dim": 32})
    inside, _ = read_tower("dots3_note_audio_encoder", {"whisper_config": {**names, "max_source_positions": 77}})
    for found in (model, inside):
        assert (len(found.layers), found.num_heads, found.layers[0] and found.layers[0].head_dim) == (3, 2, 32)
    assert inside.max_position == 77
    with pytest.raises(ValueError, match=r"hidden_size and d_model contradict each other: 64 and 32"):
        read_tower("voxtral_realtime_encoder", {"hidden_size": 64, "d_model": 32})


def test_what_is_unusual_is_said() -> None:
    dit, _ = read_tower("qwen2_5_omni_dit", {})
    assert dit.heads == 1 and dit.layers[0] is not None and dit.layers[0].permuted
    clvp, _ = read_tower("clvp_encoder", {})
    assert clvp.targets == ("q", "k", "v")
    llama4, _ = read_tower("llama4_vision_model", {})
    assert (llama4.prefix_tokens, llama4.suffix_tokens) == (0, 1)
    dino, _ = read_tower("dinov3_vit", {"num_register_tokens": 4})
    assert (dino.prefix_tokens, dino.suffix_tokens) == (5, 0)
    lfm3, _ = read_tower("lfm3_vl_vision", {"num_hidden_layers": 6})
    assert [spec is not None for spec in lfm3.layers] == [False, False, True, False, True, False]
    sapiens, _ = read_tower("sapiens2", {})
    assert sapiens.num_kv_heads == 16 and str([16] * 8 + [8] * 8 + [16] * 8) in sapiens.notes[-1]
    moonshine, _ = read_tower("moonshine", {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 3})
    assert moonshine.layer_types == ("encoder",) * 2 + ("decoder",) * 3
    for name, words in {
        "xcodec2": "index of the head", "wav2vec2-bert": "before they are projected",
        "mlcd_vision_model": "class_pos_emb",
        "muse_spark_vision": "column + 1", "inkling2_vision": "(0, 0)", "sam2_video": "(column, row)",
        "edgetam_video": "memory_attention_rope_k_sizes", "musicflamingo": "audio features",
        "efficientloftr": "whole hidden size", "evolla_saprot": "head_dim ** -0.5",
    }.items():  # fmt: skip
        assert words in " ".join(read_tower(name, given(name))[0].notes)


def test_odd_shares_of_a_head_are_rounded_up_as_their_code_does() -> None:
    """45 of 50 channels: 23 frequencies over 45, and 46 channels turn."""
    config = config_of("moonshine", hidden_size=400)
    spec = read_tower("moonshine", config.to_dict())[0].layers[0]
    assert spec is not None and (spec.rotary_dim, spec.exponent_dim) == (46, 45)
    assert compared("moonshine", config).exact


NAMED: list[tuple[dict[str, Any], str, dict[str, Any], str | None]] = [
    ({"model_type": "pixtral"}, "vision_config", {"model_type": "mistral3"}, "pixtral"),
    ({"model_type": "qwen2_5_vl"}, "vision_config", {}, "qwen2_5_vl_vision"),
    ({}, "thinker_config.vision_config", {"model_type": "qwen2_5_vl"}, "qwen2_5_vl_vision"),
    ({"model_type": ""}, "code2wav_config", {"model_type": "qwen3_omni_moe"}, "qwen3_omni_moe_code2wav"),
    ({}, "atom_encoder", {"model_type": "esmfold2"}, "esmfold2_atom"),
    ({}, "protein_encoder_config", {"model_type": "evolla"}, "evolla_saprot"),
    ({"model_type": "lightglue"}, "", {}, "lightglue"),
    ({"model_type": "siglip_vision_model"}, "vision_config", {"model_type": "gemma3"}, None),
    ({"model_type": "qwen2_vl"}, "text_config", {}, None),
    ({}, "vision_config", {}, None),
]


@pytest.mark.parametrize(("data", "path", "parent", "name"), NAMED)
def test_towers_are_known_by_their_type_or_their_place(
    data: dict[str, Any], path: str, parent: dict[str, Any], name: str | None
) -> None:
    assert tower_of(data, path, parent) == name


def test_scalings_of_audio_encoders_are_those_of_text_models() -> None:
    """Their code accepts transformers' scalings; checked against its module, at and beyond the trained length."""
    rope = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 2048}
    for name, tower in TOWERS.items():
        if isinstance(tower, SequenceTower) and tower.partial is None:
            assert compared(name, config_of(name, rope_parameters=dict(rope))).exact, name
