"""What the sweep over all keys found: keys that changed the tables of one side alone.

Expected values are those of the classes of transformers 5.23, whose source is named beside each.
"""

import re
from typing import Any

import pytest

from phasor import read_config
from phasor.models.configs import NoRotary, Reason, Refused


def refused(config: dict[str, Any], *says: str) -> None:
    with pytest.raises(ValueError, match=".*".join(map(re.escape, says))):
        read_config(config)


@pytest.mark.parametrize(
    ("model_type", "word", "more"),
    [("esm", "rope", {}), ("granitemoehybrid", "rotary", {"layer_types": ["mamba", "full_attention"] * 16})],
)
def test_a_switch_has_one_word(model_type: str, word: str, more: dict[str, Any]) -> None:
    """EsmSelfAttention asks for "rotary", GraniteMoeHybridModel for "rope"; with another word they do not rotate."""
    with pytest.raises(NoRotary, match=f"position_embedding_type is '{word}'"):
        read_config({"model_type": model_type, "position_embedding_type": word, **more})


def test_olmo3_hands_its_base_to_one_kind_of_layer() -> None:
    """Olmo3Config.convert_rope_params_to_dict pops rope_theta for full attention, and finds none for the other."""
    model = read_config({"model_type": "olmo3", "num_hidden_layers": 4, "rope_theta": 10_000.0})
    assert [spec.base for spec in model.layers if spec] == [500_000.0] * 3 + [10_000.0]


KINDS = {"main": {"rope_theta": 1e4}, "compress": {"rope_theta": 1.6e5}}
WHOLE = {kind: {**rope, "partial_rotary_factor": 0.125} for kind, rope in KINDS.items()}


def test_deepseek_v4_fills_nothing_in_under_kinds_of_layers() -> None:
    refused({"model_type": "deepseek_v4", "rope_parameters": KINDS}, "rope_parameters.main.partial_rotary_factor is")
    yarn = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 65_536}
    scaled = {**WHOLE, "compress": {**WHOLE["compress"], **yarn}}
    refused({"model_type": "deepseek_v4", "rope_parameters": scaled}, "rope_parameters.compress.attention_factor is")
    scaled["compress"]["attention_factor"] = 1.0
    assert read_config({"model_type": "deepseek_v4", "rope_parameters": scaled}).layers[0].scaling.factor == 16.0  # type: ignore[union-attr]


MIMO = {"model_type": "mimo_v2_flash", "num_hidden_layers": 6}


def test_keys_that_the_class_of_mimo_does_not_read() -> None:
    """MiMoV2FlashConfig.convert_rope_params_to_dict does nothing: bases and share stand in rope_parameters alone."""
    published = {"rope_theta": 5_000_000, "swa_rope_theta": 10_000, "partial_rotary_factor": 0.334, "swa_head_dim": 192}
    assert read_config({**MIMO, **published}) == read_config(MIMO)
    for key, value in published.items():
        refused({**MIMO, key: 2 * value}, key, "contradict")
    bare = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    refused({**MIMO, "rope_parameters": bare}, "full_attention.partial_rotary_factor is missing")


def test_a_kind_of_layer_without_a_base_has_that_of_the_class() -> None:
    """PreTrainedConfig.convert_rope_params_to_dict takes default_theta for it, not what a missing dictionary means."""
    rope = {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_theta": 3e4}}
    lfm = read_config({"model_type": "lfm3", "rope_parameters": rope})
    assert {spec.base for spec in lfm.distinct} == {3e4, 1e6}
    rope = {"sliding_attention": {"rope_type": "default"}, "indexed_attention": {"rope_theta": 3e4}}
    dots = read_config({"model_type": "dots3_note_text", "rope_parameters": rope})
    assert {spec.base for spec in dots.distinct} == {3e4, 8e7}


def test_dots3_without_windows() -> None:
    """Dots3NoteTextConfig.__post_init__: no layer slides."""
    model = read_config({"model_type": "dots3_note_text", "use_sliding_window": False})
    assert set(model.layer_types) == {"indexed_attention"} and len(model.distinct) == 1


def test_frequencies_of_another_width_than_the_channels_that_turn() -> None:
    """The functions of the scalings go by head_dim and partial_rotary_factor, the attention by qk_rope_head_dim."""
    share = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0, "partial_rotary_factor": 0.5}
    for model_type in ("axk2", "deepseek_v2", "deepseek_v32"):
        refused(
            {"model_type": model_type, "rope_parameters": share}, "contradict each other: 0.5 and", "remove the first"
        )
    refused({"model_type": "longcat_flash", "num_layers": 4, "head_dim": 128}, "head_dim and qk_rope_head_dim")
    kinds = ("sliding_attention", "indexed_attention")
    rope = {kind: {**share, "rope_type": "proportional"} for kind in kinds}
    refused({"model_type": "dots3_note_text", "rope_parameters": rope}, "proportional scaling")
    refused(
        {"model_type": "dots3_note_audio_encoder", "head_dim": 128}, "num_attention_heads", "head_dim", "64 and 128"
    )


def test_the_share_of_mistral4_is_that_of_its_rotated_channels() -> None:
    """Its class states it beside YaRN: half of head_dim, which is qk_rope_head_dim."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 128.0, "original_max_position_embeddings": 8192}
    model = read_config({"model_type": "mistral4", "rope_parameters": {**rope, "partial_rotary_factor": 0.5}})
    assert {spec.rotary_dim for spec in model.distinct} == {64}


def test_neomme_fills_in_what_a_kind_of_layer_leaves_out() -> None:
    """NeoMMEConfig.convert_rope_params_to_dict sets rope_type before it looks at ``type``, and a share by kind."""
    whole = {"rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.5}
    rope = {"sliding_attention": whole, "full_attention": whole}
    assert {spec.rotary_dim for spec in read_config({"model_type": "neomme", "rope_parameters": rope}).distinct} == {32}
    for name in ("rope_type", "partial_rotary_factor"):
        gap = {**rope, "full_attention": {key: value for key, value in whole.items() if key != name}}
        refused({"model_type": "neomme", "rope_parameters": gap}, f"full_attention.{name} is missing")


def test_the_base_of_muse_spark_stands_in_its_dictionary() -> None:
    """MuseSparkTextConfig.__post_init__ has filled the dictionary in before rope_theta could."""
    refused({"model_type": "muse_spark_text", "rope_theta": 10_000.0}, "rope_theta is 10000.0", "does not read it")


def test_the_heads_of_mistral4_are_as_wide_as_their_parts() -> None:
    """Its frequencies are formed for partial_rotary_factor of head_dim, whatever the attention cuts off."""
    refused({"model_type": "mistral4", "head_dim": 64}, "head_dim", "contradict each other: 128 and 64")


def test_the_width_of_the_heads_of_roformer_is_that_of_its_model() -> None:
    """RoFormerSelfAttention divides hidden_size by num_attention_heads; head_dim can only say the same."""
    for model_type in ("roformer", "roformer_v2"):
        refused({"model_type": model_type, "head_dim": 32}, "head_dim is 32", "does not read it")
        assert {spec.head_dim for spec in read_config({"model_type": model_type, "head_dim": 64}).distinct} == {64}


@pytest.mark.parametrize(
    ("model_type", "key"),
    [
        ("wav2vec2-bert", "rope_parameters"),
        ("wav2vec2-conformer", "rope_scaling"),
        ("seamless_m4t", "rope_parameters"),
    ],
)
def test_conformers_have_no_rope_parameters(model_type: str, key: str) -> None:
    """Wav2Vec2BertRotaryPositionalEmbedding takes its base from rotary_embedding_base alone."""
    config = {"model_type": model_type, "position_embeddings_type": "rotary"}
    refused({**config, key: {"rope_type": "default", "rope_theta": 20_000.0}}, f"{key}.rope_theta", "20000.0")
    assert {spec.base for spec in read_config({**config, "rotary_embedding_base": 20_000}).distinct} == {20_000.0}


def test_the_proteins_of_evolla_have_no_rope_parameters() -> None:
    """EvollaSaProtRotaryEmbedding takes its base from rope_theta beside them."""
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 20_000.0}}
    with pytest.raises(ValueError, match=r"rope_parameters\.rope_theta is not understood"):
        read_config({"model_type": "evolla", "protein_encoder_config": rope}, part="protein_encoder_config")
    proteins = {"model_type": "evolla", "protein_encoder_config": {"rope_theta": 20_000.0}}
    assert {spec.base for spec in read_config(proteins, part="protein_encoder_config").distinct} == {20_000.0}


def test_step_puts_what_rope_scaling_says_into_its_full_attention() -> None:
    """Step3p7TextConfig.__post_init__ updates the parameters of full attention with it, as if it named no layers."""
    linear = {"rope_type": "linear", "factor": 2.0}
    kinds = {"model_type": "step3p5", "rope_scaling": {"full_attention": linear}}
    refused(kinds, "rope_scaling is ", "move the types of layers to rope_parameters")
    (spec,) = read_config({"model_type": "step3p5", "rope_theta": 10_000.0, "rope_scaling": linear}).distinct
    assert spec.scaling.factor == 2.0  # type: ignore[union-attr]


def test_ultrabert_takes_the_base_of_all_models_for_layers_that_state_none() -> None:
    """PreTrainedConfig.convert_rope_params_to_dict: 10000 for both kinds; 2560000 only without any dictionary."""
    rope = {"sliding_attention": {"rope_theta": 3e4}, "full_attention": {"type": "linear", "factor": 2.0}}
    model = read_config({"model_type": "ultrabert", "rope_parameters": rope})
    assert [spec.base for spec in model.distinct] == [3e4, 1e4]
    assert [spec.base for spec in read_config({"model_type": "ultrabert"}).distinct] == [1e4, 2_560_000.0]


def test_a_share_that_contradicts_the_number_of_heads_is_refused_as_a_contradiction() -> None:
    """EfficientLoFTRRotaryEmbedding forms ``int(head_dim * share)`` angles for each of two axes of the whole width."""
    with pytest.raises(Refused, match="half the number of heads") as refusal:
        read_config({"model_type": "efficientloftr", "partial_rotary_factor": 1})
    assert refusal.value.reason is Reason.CONTRADICTION
    assert refusal.value.keys == ("partial_rotary_factor", "num_attention_heads")
