"""Towers against transformers' own rotary modules and apply functions: rotated tensors, bit for bit."""

from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

from towers_theirs import config_of, made, modeling, spec_of  # noqa: E402

from conformance.operators import Outcome, cases, compare  # noqa: E402
from phasor import Rotation, apply_rotary, positions  # noqa: E402
from phasor.models.reading.tower import GridTower, SequenceTower  # noqa: E402
from rows import TOWERS, read_tower  # noqa: E402


def compared(name: str, config: Any, dtype: torch.dtype = torch.float32) -> Outcome:
    """The model's own code beside what the row reads of a config."""
    model, _ = read_tower(name, config.to_dict(), "predictor" if name.endswith("predictor") else "")
    case = next(cases(model, config))
    return compare(case, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["esmfold2_atom", "evolla_saprot", "qwen3_omni_moe_code2wav"])
def test_parts_that_are_no_type_for_themselves_rotate_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    assert compared(name, config_of(name), dtype).exact


def other_sizes(name: str) -> dict[str, Any]:
    """A config with half the heads, of twice the width, and another base."""
    tower, base = TOWERS[name], {"rope_parameters": {"rope_theta": 777.0}}
    odd: dict[str, dict[str, Any]] = {
        "clvp_encoder": {"projection_dim": 1536, "num_attention_heads": 6},
        "efficientloftr": {
            "num_attention_heads": 4, "rope_parameters": {"rope_theta": 777.0, "partial_rotary_factor": 2.0}},
        "esmfold2_atom": {"hidden_size": 256, "num_spatial_rope_pairs_per_axis": 4, "spatial_rope_base_frequency": 9.0},
        "evolla_saprot": {"num_attention_heads": 10, "rope_theta": 777.0},
        "sam3_vit_model": {"num_attention_heads": 8, **base},
        "sapiens2": {"num_attention_heads": 8, "rope_theta": 777.0, "num_register_tokens": 3},
        "seamless_m4t": {"speech_encoder_attention_heads": 8, "rotary_embedding_base": 777},
        "vjepa2_predictor": {"pred_num_attention_heads": 4},
        "wav2vec2-bert": {"num_attention_heads": 8, "rotary_embedding_base": 777},
        "wav2vec2-conformer": {"num_attention_heads": 6, "rotary_embedding_base": 777},
        "moonshine": {"hidden_size": 352, "rope_parameters": {"rope_theta": 777.0, "partial_rotary_factor": 0.5}},
    }  # fmt: skip
    if name in odd:
        return odd[name]
    if isinstance(tower, SequenceTower):
        heads = tower.heads
        assert heads is not None
        share = {} if tower.partial is None else {"partial_rotary_factor": 0.25}
        own = {"head_dim": 48} if tower.head_dim else {}
        return {"num_attention_heads": heads // 2, "num_key_value_heads": heads // 2, **own} | {
            "rope_parameters": {"rope_type": "default", "rope_theta": 777.0, **share}
        }
    assert isinstance(tower, GridTower), name
    (hidden, *_), (key, *_), _ = tower.names
    own = {"rope_theta": 777.0} if name == "dinov3_vit" else {} if name == "vjepa2" else base
    if tower.heads == 1:
        return {hidden: 2 * tower.hidden, **own}
    return {key: tower.heads // 2, **({"head_dim": 32} if tower.head_dim else {}), **own}


@pytest.mark.parametrize("name", sorted(set(TOWERS) - {"musicflamingo"}))
def test_other_sizes_are_read_from_the_config(name: str) -> None:
    default, other = config_of(name), config_of(name, **other_sizes(name))
    assert spec_of(name, default) != spec_of(name, other)
    outcome = compared(name, other)
    assert outcome.exact, outcome


def test_layers_across_the_image_have_shrunken_positions() -> None:
    """SAM 3: its two kinds of layers hold their positions and module, at the default 72 x 72 patches."""
    config, code = config_of("sam3_vit_model"), modeling("sam3_vit_model")
    model, _ = read_tower("sam3_vit_model", config.to_dict())
    assert [i for i, word in enumerate(model.layer_types) if word == "full_attention"] == config.global_attn_indexes
    for layer, window, side in ((0, 24, 24), (7, 0, 72)):
        ids = code.Sam3ViTLayer.precompute_positions(config, window)
        cos, sin = code.Sam3ViTRotaryEmbedding(config)(torch.zeros(1), ids)
        spec = model.layers[layer]
        assert spec is not None
        rotation = Rotation.at(spec.replace(angles="float32"), positions.grid(side, side).flip(0))
        assert torch.equal(cos[0, :, ::2], rotation.cos) and torch.equal(sin[0, :, ::2], rotation.sin)


def test_musicflamingo_up_to_the_rounding_of_its_products() -> None:
    """Its code multiplies position, frequency and time in another order: each product rounds by 2**-24 of the angle."""
    config = config_of("musicflamingo")
    model, _ = read_tower("musicflamingo", config.to_dict())
    (spec,) = model.layers
    assert spec is not None and model.targets == ()
    code, frames, base = modeling("musicflamingo"), 750, config.rope_parameters["rope_theta"]
    times = 60 + torch.arange(frames) * 0.04
    cos, _ = code.MusicFlamingoRotaryEmbedding(config)(times[None], seq_len=frames)
    window = torch.round(times[0] / (config.audio_frame_step * 4 * frames))
    turn = -2 * torch.pi * times.double()
    at = torch.stack((turn * window / base, turn * 2 * torch.pi * torch.arange(frames) / base))
    rotation = Rotation.at(spec, at)
    assert (cos[0, :, ::2] - rotation.cos).abs().max() < 8 * 2**-24 * at.abs().max()
    x = made((1, 1, frames, spec.head_dim), torch.float32)
    turned = code.apply_rotary_time_emb(x[0, 0], *(t.repeat_interleave(2, -1) for t in (rotation.cos, rotation.sin)))
    wide = Rotation.at(spec.replace(angles="float32"), at)
    assert wide.cos.dtype == torch.float64
    same = wide.replace(cos=rotation.cos.double(), sin=rotation.sin.double())
    assert torch.equal(turned, apply_rotary(x, same)[0, 0])
