"""Single mistakes in configs that were once read without a word, or refused without a true reason."""

from typing import Any

import pytest

pytest.importorskip("transformers")

from outcomes import outcome, read_and_judged

from phasor import ModelRotary, read_config, read_parts
from phasor.configs import Reason, Refused
from phasor.models.reading.keys import COMMON, slip_of
from phasor.rotary.scaling import Proportional

LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2}
SHARES = {"rope_type": "proportional", "rope_theta": 1e4}


def refusal(data: dict[str, Any], part: str | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        read_config(data, part)
    return caught.value


@pytest.mark.parametrize(
    ("data", "share"),
    [
        ({"model_type": "glm4_moe", "partial_rotary_factor": 0.5}, 0.5),
        ({"model_type": "glm4_moe"}, 0.5),
        ({"model_type": "gpt_neox", "rotary_pct": 0.5}, 0.5),
        ({"model_type": "gpt_neox"}, 0.25),
        ({"model_type": "phi", "partial_rotary_factor": 0.25}, 0.25),
        ({"model_type": "phi"}, 0.5),
        ({"model_type": "llama", "partial_rotary_factor": 0.25}, 0.25),
        ({"model_type": "qwen3_5_text"}, 0.25),
        ({"model_type": "minimax_m2", "rotary_dim": 64}, 0.5),
        ({"model_type": "minimax_m2", "rotary_dim": 64, "partial_rotary_factor": 0.5}, 0.5),
        ({"model_type": "minimax_m2", "rotary_dim": 32}, 0.25),
    ],
)
def test_proportional_scaling_takes_its_share_from_beside_the_dictionary(data: dict[str, Any], share: float) -> None:
    """As transformers does, which sets a missing share in the dictionary: from the top, else the class's default."""
    data = {**data, "num_hidden_layers": 4, "rope_parameters": SHARES}
    (spec,) = read_config(data).distinct
    assert spec.scaling == Proportional(share) and spec.rotary_dim == spec.head_dim
    assert outcome(data).kind == "EQUAL"


@pytest.mark.parametrize(("composite", "inner"), [("llava", "mistral"), ("qwen3_asr", "qwen2"), ("voxtral", "qwen3")])
def test_a_part_may_be_of_any_class_where_the_composite_asks_it(composite: str, inner: str) -> None:
    assert outcome({"model_type": composite, "text_config": {"model_type": inner}}).kind == "EQUAL"


@pytest.mark.parametrize(("value", "scaled"), [({}, False), (None, True)])
def test_an_empty_dictionary_is_stated_and_null_is_not(value: Any, scaled: bool) -> None:
    """gpt-oss has YaRN by default, and its class looks whether there is a dictionary."""
    data = {"model_type": "gpt_oss", "num_hidden_layers": 2, "rope_parameters": value}
    assert all((spec.scaling is not None) == scaled for spec in read_config(data).distinct)
    assert outcome(data).kind == "EQUAL"


THETA = {"rope_theta": 1e4}
LINEAR = {"rope_type": "linear", "factor": 2.0}
ODD = (
    LINEAR, {**LINEAR, "rope_type": "dynamic"},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 1024},
    {"rope_type": "longrope", "short_factor": [1.0 + i / 10 for i in range(11)], "long_factor": [4.0] * 11,
     "original_max_position_embeddings": 1024, "factor": 4.0},
)  # fmt: skip
DOTS3 = {"model_type": "dots3_note_text", "num_hidden_layers": 8}
MIMO = {"model_type": "mimo_v2_flash", "num_hidden_layers": 2}
KIMI = {  # vision_config of moonshotai/Kimi-K2.5, the keys about sizes and positions
    "init_pos_emb_height": 64, "init_pos_emb_time": 4, "init_pos_emb_width": 64, "merge_kernel_size": [2, 2],
    "model_type": "kimi_k25_vision", "patch_size": 14, "pos_emb_type": "divided_fixed", "vt_hidden_size": 1152,
    "vt_intermediate_size": 4304, "vt_num_attention_heads": 16, "vt_num_hidden_layers": 27,
}  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        {**DOTS3, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}},
        {**DOTS3, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.25}},
        {**DOTS3, "rope_parameters": {}},
        {"model_type": "deepseek_v3", "rope_interleave": None},
        {"model_type": "phi", "partial_rotary_factor": None},
        {**MIMO, "head_dim": 128},
        {**MIMO, "head_dim": 128, "swa_head_dim": 128},
        KIMI,
        {"model_type": "kimi_k25", "text_config": {"model_type": "deepseek_v3"}, "vision_config": KIMI},
        {"model_type": "qwen3_vl_text", "rope_parameters": {"mrope_section": [16, 24, 24], "rope_type": "default"}},
        {"model_type": "qwen3_vl_text", "rope_parameters": {"mrope_section": [8, 12, 12], "rope_type": "default"}},
        # HunYuan VL: the members of a pair by different axes; Cohere Compass: sections of one kind of layer
        {"model_type": "hunyuan_vl_text", "head_dim": 128, "rope_parameters": {**THETA, "mrope_section": [16] * 4}},
        {"model_type": "hunyuan_vl_text", "head_dim": 128,
         "rope_parameters": {**THETA, "xdrope_section": [16] * 4, "type": "xdrope", "alpha": 1000.0, "factor": 1.0}},
        {"model_type": "cohere_compass_text", "num_hidden_layers": 2,
         "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
             "sliding_attention": {**THETA, "rope_type": "default", "mrope_section": [24, 20, 20]},
             "full_attention": None}},
        # Moonshine, and an odd width of GLM-4-MoE: 4096 // 96 = 42 channels, half of them 21
        *({"model_type": "moonshine", "rope_parameters": {**THETA, "partial_rotary_factor": 0.8, **rope}}
          for rope in (LINEAR, {**LINEAR, "rope_type": "yarn", "original_max_position_embeddings": 128})),
        *({"model_type": "glm4_moe", "max_position_embeddings": 2048,
           "rope_parameters": {**THETA, "partial_rotary_factor": 0.5, **rope}} for rope in ODD),
    ],
)  # fmt: skip
def test_what_transformers_reads_is_not_refused(data: dict[str, Any]) -> None:
    parts, found = read_and_judged(data)
    assert found.kind == "EQUAL" and not any(isinstance(p, str) and p.startswith("not read") for p in parts.values())


@pytest.mark.parametrize("inside", [True, False])
def test_a_first_length_that_is_no_whole_number_is_named_where_it_stands(inside: bool) -> None:
    rope = {**THETA, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    assert read_config({**LLAMA, "rope_parameters": rope}).layers[0].scaling.original_max_position == 1024
    key, half = "original_max_position_embeddings", 1024.5
    data = {**LLAMA, "rope_parameters": {**rope, key: half}, **({} if inside else {key: half})}
    found = refusal(data)
    assert str(found).startswith(f"rope_parameters.{key} must be a whole number of positions, got 1024.5")


def test_every_refusal_of_a_part_carries_its_reason() -> None:
    data = {"model_type": "llava", "text_config": {**LLAMA, "rope_theta": "4"}}
    assert str(read_parts(data)["text_config"]).startswith("not read") and refusal(data).reason is Reason.VALUE


def test_a_known_name_is_no_slip_of_another() -> None:
    assert isinstance(read_parts({**LLAMA, "n_head": None, "head_dim": 128})[""], ModelRotary)


def test_one_letter_is_a_slip_and_two_are_not() -> None:
    """Left out, doubled, another one, two neighbours exchanged; and one left out with another added."""
    for slip in ("eta_fast", "beta_fas", "bbeta_fast", "beta_fost", "ebta_fast", "beta_fats"):
        assert slip_of(slip, ["beta_fast"]) == "beta_fast", slip
    assert [slip_of(other, ["beta_fast"]) for other in ("xbta_fast", "beta_fxs", "bet_fas", "eta_fasty")] == [""] * 4


def test_a_letter_of_any_known_name_is_noticed_whichever_names_are_beside_it() -> None:
    """Left out, doubled, or exchanged with its neighbour; two known names may themselves be a letter apart."""
    for name in COMMON:
        for i in range(len(name) if len(name) > 4 else 0):
            ways = (
                name[:i] + name[i + 1 :],
                name[: i + 1] + name[i:],
                name[:i] + name[i : i + 2][::-1] + name[i + 2 :],
            )
            for slip in {*ways} - {*COMMON}:
                assert slip_of(slip, COMMON) in (name, *pairs_of_one_letter(name)), (name, slip)


def pairs_of_one_letter(name: str) -> list[str]:
    return [other for other in COMMON if slip_of(other, [name]) == name]
