"""Classes of diffusers whose tables a pipeline makes, or whose tokens lie otherwise: read with its spec.

Widths, bases and axes are those of the table in the outside data, which was written from the sources.
"""

from typing import Any

import pytest
import torch

import phasor
from eye.class_tables import has_their_bits, taken
from eye.picture_tables import builders
from eye.test_pictures import packages
from integrations.test_pictures import given_back, same
from phasor.axes import Alternating, Axial, Listed, OneAxis
from phasor.eye.tiny.picture_call import inputs_of
from phasor.eye.tiny.pictures import built, class_of, few_words, made_of, small
from phasor.models.configs import NoRotary

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
COG = {
    "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8,
    "text_embed_dim": 8, "num_layers": 1, "sample_width": 16, "sample_height": 12, "sample_frames": 9,
    "max_text_seq_length": 3, "use_rotary_positional_embeddings": True,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "CogVideoXTransformer3DModel": COG,
    "AllegroTransformer3DModel": {
        "num_attention_heads": 2, "attention_head_dim": 24, "in_channels": 4, "out_channels": 4, "num_layers": 1,
        "cross_attention_dim": 48, "sample_height": 12, "sample_width": 16, "sample_frames": 4, "caption_channels": 8,
        "interpolation_scale_t": 2.2, "interpolation_scale_h": 2.0, "interpolation_scale_w": 2.0,
    },
    "HunyuanDiT2DModel": {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "patch_size": 2, "sample_size": 8,
        "hidden_size": 32, "num_layers": 2, "cross_attention_dim": 8, "cross_attention_dim_t5": 16,
        "pooled_projection_dim": 8, "text_len": 3, "text_len_t5": 3,
    },
    "LuminaNextDiT2DModel": {
        "sample_size": 16, "in_channels": 4, "hidden_size": 32, "num_layers": 1, "num_attention_heads": 2,
        "num_kv_heads": 2, "multiple_of": 16, "cross_attention_dim": 8,
    },
    "StableAudioDiTModel": {
        "sample_size": 8, "in_channels": 4, "num_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2,
        "num_key_value_attention_heads": 1, "out_channels": 4, "cross_attention_dim": 16, "time_proj_dim": 8,
        "global_states_input_dim": 8, "cross_attention_input_dim": 8,
    },
    "SanaVideoTransformer3DModel": {
        "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1,
        "num_cross_attention_heads": 2, "cross_attention_head_dim": 16, "cross_attention_dim": 32,
        "caption_channels": 8,
    },
    "ErnieImageTransformer2DModel": {
        "hidden_size": 32, "num_attention_heads": 2, "num_layers": 1, "ffn_hidden_size": 32, "in_channels": 4,
        "out_channels": 4, "patch_size": 1, "text_in_dim": 8, "rope_axes_dim": [4, 6, 6],
    },
}  # fmt: skip
AXES = {
    "CogVideoXTransformer3DModel": Axial((2, 3, 3)),
    "LuminaNextDiT2DModel": Alternating((0, 1), own_ladders=True),
    "StableAudioDiTModel": OneAxis(),
    "SanaVideoTransformer3DModel": Axial((4, 2, 2)),
}


def small_model(name: str) -> Any:
    made = class_of("diffusers", name)
    assert made is not None
    return built(lambda: made_of(made, small(few_words(CONFIGS[name]))))


def test_heads_keep_their_width_under_the_names_of_an_audio_model() -> None:
    assert small({"dit_dim": 1536, "dit_heads": 24, "dit_depth": 24}) == {
        "dit_dim": 128,
        "dit_heads": 2,
        "dit_depth": 1,
    }


def test_sides_that_the_patch_does_not_divide_are_named() -> None:
    packages()
    made: Any = class_of("diffusers", "WanTransformer3DModel")
    model = made(num_attention_heads=2, attention_head_dim=24, num_layers=1, ffn_dim=16, text_dim=8, freq_dim=8)
    given = {"hidden_states": torch.randn(1, 16, 2, 1, 6), "timestep": torch.tensor([1])}
    with pytest.raises(ValueError, match=r"sides of a picture must be whole numbers of its patches, \(1, 2, 2\)"):
        phasor.observe(model, given | {"encoder_hidden_states": torch.randn(1, 4, 8)})
    given["hidden_states"] = torch.randn(1, 16, 2, 2, 6)
    with pytest.raises(ValueError, match="could not be run") as error:  # words of another width
        phasor.observe(model, given | {"encoder_hidden_states": torch.randn(1, 4, 9)})
    assert "patches" not in str(error.value)


@pytest.mark.parametrize("name", AXES)
def test_a_class_is_read_with_its_axes_and_base(name: str) -> None:
    packages()
    (spec,) = phasor.read_config({"_class_name": name, **CONFIGS[name]}).distinct
    assert (spec.base, spec.axes) == (1e4, AXES[name])


def test_what_a_config_does_not_say_is_the_default_of_its_class_and_is_built_small() -> None:
    """`WanTransformer3DModel()` has 40 layers of 40 heads of 128 channels, which would take 57 GB."""
    packages()
    rotary = phasor.read_config({"_class_name": "WanTransformer3DModel"})
    (spec,) = rotary.distinct
    assert (len(rotary.layers), spec.head_dim, spec.base, spec.axes) == (40, 128, 1e4, Axial((22, 21, 21)))


def test_hunyuan_dit_turns_its_first_half_by_the_column() -> None:
    packages()
    model = phasor.read_config({"_class_name": "HunyuanDiT2DModel", **CONFIGS["HunyuanDiT2DModel"]})
    (spec,) = model.distinct
    assert isinstance(spec.axes, Listed)
    assert spec.axes.axis_of_pair(8) == (1, 1, 1, 1, 0, 0, 0, 0)
    assert list(model.grid) == ["row", "column"]


def test_stable_audio_turns_half_of_a_head_and_allegro_thirds() -> None:
    packages()
    (sound,) = phasor.read_config({"_class_name": "StableAudioDiTModel", **CONFIGS["StableAudioDiTModel"]}).distinct
    (clip,) = phasor.read_config(
        {"_class_name": "AllegroTransformer3DModel", **CONFIGS["AllegroTransformer3DModel"]}
    ).distinct
    assert (sound.rotary_dim, sound.head_dim, sound.interleaved) == (8, 16, False)
    assert (clip.blocks, clip.axes.axis_of_pair(12)) == (3, 4 * (0,) + 4 * (1,) + 4 * (2,))


def test_a_pipeline_that_makes_no_tables_makes_none_here() -> None:
    packages()
    with pytest.raises(ValueError, match="without rotation") as said:
        phasor.read_config(
            {"_class_name": "CogVideoXTransformer3DModel", **COG, "use_rotary_positional_embeddings": False}
        )
    assert not isinstance(said.value, NoRotary) or "rotates nothing" in str(said.value)


def test_ernie_image_turns_the_members_of_a_pair_by_angles_of_their_own() -> None:
    packages()
    config = {"_class_name": "ErnieImageTransformer2DModel", **CONFIGS["ErnieImageTransformer2DModel"]}
    (spec,) = phasor.read_config(config).distinct
    assert (spec.base, spec.interleaved) == (256.0, False)
    assert spec.second is not None  # a0 a0 a1 a1 of the axes' ladders, channels paired with the half behind
    assert spec.axes.axis_of_pair(8) == (0, 0, 0, 0, 1, 1, 1, 1)
    assert spec.second.axis_of_pair(8) == (1, 1, 2, 2, 2, 2, 2, 2)
    model = small_model("ErnieImageTransformer2DModel")
    assert phasor.diagnose(model, inputs_of(model, model.config)).sound


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "ErnieImageTransformer2DModel"])
def test_queries_and_keys_have_the_bits_of_the_tables_on_three_grids(name: str, dtype: torch.dtype) -> None:
    packages()
    if (name, dtype) == ("HunyuanDiT2DModel", torch.bfloat16):
        pytest.skip("its class embeds timesteps in their own dtype, which weights in bfloat16 do not take")
    grids, calls = ((2, 3, 5), (3, 4, 6), (2, 2, 7)), list[dict[str, Any]]()
    model, tables = taken(lambda: small_model(name).to(dtype))  # which may keep them

    def seen(grid: tuple[int, int, int]) -> phasor.Observation:
        calls.append(inputs_of(model, model.config, grid))
        return phasor.observe(model, calls[-1])

    for grid in grids:
        found, made = taken(lambda grid=grid: seen(grid))
        turning = [side for site in found.sites for side in (site.q, site.k) if side.turns]
        assert turning and all(has_their_bits(side, tables + made) for side in turning)
    own = [given_back(model, given) for given in calls]
    phasor.patch(model, inputs=calls[0])
    assert all(same(given_back(model, given), before) for given, before in zip(calls, own, strict=True))


@pytest.mark.parametrize("name", ["ltx", "mochi"])
def test_heads_with_angles_of_their_own_are_compared_with_their_class(name: str) -> None:
    packages()
    make, inputs = builders().MODELS[name]
    model = make()
    assert phasor.diagnose(model, inputs[0]()).sound
    if name == "ltx":
        model.rope.theta = 5e3
    else:
        model.rope.target_area = 96 * 96
    assert phasor.diagnose(model, inputs[0]()).causes
