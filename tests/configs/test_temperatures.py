"""Queries that grow with the position: which layers, which scheme, against the functions of transformers."""

import numpy
import pytest
import torch

from phasor.models.configs import ModelRotary, read_config
from phasor.rotary.temperature import LearnedLog, LogFloor, Power

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "head_dim": 16}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0, "original_max_position_embeddings": 64}
POSITIONS = torch.tensor([0, 63, 64, 4095, 131_071])


def test_ministral_3_on_all_layers() -> None:
    code = pytest.importorskip("transformers.models.ministral3.modeling_ministral3")
    plain = read_config({"model_type": "ministral3", **SMALL, "rope_parameters": YARN})
    warm = read_config({"model_type": "ministral3", **SMALL, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.1}})
    assert warm.layers == plain.layers and plain.temperatures == ()
    assert warm.temperatures == (LogFloor(0.1, 64),) * 4
    theirs = code.get_llama_4_attn_scale(POSITIONS[None], 0.1, 64)[0, 0, :, 0]
    assert torch.equal(warm.temperatures[0].at(POSITIONS), theirs)  # type: ignore[union-attr]
    assert read_config({"model_type": "mistral4"}).temperatures[0] == LogFloor(0.1, 8192)


def test_a_beta_that_the_code_does_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match=r"llama_4_scaling_beta is not understood: llama with yarn scaling uses"):
        read_config({"model_type": "llama", **SMALL, "rope_scaling": {**YARN, "llama_4_scaling_beta": 0.1}})


def test_llama_4_on_layers_without_rotation() -> None:
    """attn_scale 0.1, floor_scale 8192: ln 2 / 10 more from position 8191 on, which is the 8192nd token."""
    model = read_config({"model_type": "llama4_text", **SMALL})
    assert model.temperatures == (None, None, None, LogFloor(0.1, 8192, offset=1))
    values = model.temperatures[3].at(torch.tensor([8190, 8191]))  # type: ignore[union-attr]
    assert values.tolist() == pytest.approx([1.0, 1.0693147180559945], rel=1e-7)
    assert read_config({"model_type": "llama4_text", **SMALL, "attn_temperature_tuning": False}).temperatures == ()
    other = read_config({"model_type": "llama4_text", **SMALL, "attn_scale": 0.2, "floor_scale": 100})
    assert other.temperatures[3] == LogFloor(0.2, 100, offset=1)


def test_beam_on_layers_without_rotation() -> None:
    code = pytest.importorskip("transformers.models.beam.modeling_beam")
    model = read_config({"model_type": "beam"})
    for spec, scheme in zip(model.layers, model.temperatures, strict=True):
        assert scheme == (Power() if spec is None else None)
    theirs = code.compute_attention_scaling(POSITIONS[None])[0, 0, :, 0]
    assert torch.equal(Power().at(POSITIONS), theirs)


def test_mistral_large_4_learns_it_for_all_layers() -> None:
    model = read_config({"model_type": "mistral_large4_text"})
    assert model.temperatures == (LearnedLog(),) * 72


def test_temperatures_survive_json() -> None:
    for name in ("beam", "mistral4", "mistral_large4_text"):
        model = read_config({"model_type": name})
        assert ModelRotary.from_dict(model.to_dict()) == model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_mistral_large_4_learns_is_applied_as_in_its_code(dtype: torch.dtype) -> None:
    code = pytest.importorskip("transformers.models.mistral_large4.modeling_mistral_large4")
    module = code.MistralLarge4TextSoftmaxScaling(3)
    torch.nn.init.normal_(module.scale)
    torch.nn.init.normal_(module.bias)
    module, q = module.to(dtype), torch.randn(1, 3, len(POSITIONS), 4).to(dtype)
    factor = LearnedLog().at(POSITIONS[None], scale=module.scale, bias=module.bias)
    assert torch.equal(q * factor.unsqueeze(-1), module(q, POSITIONS[None], head_dim_first=True))


@pytest.mark.parametrize("offset", [0, 1])
def test_log_floor_against_the_closed_form(offset: int) -> None:
    """In float64 with numpy, and as Llama 4 writes it inside its attention; a float32 logarithm and two roundings."""
    positions = torch.tensor([0, 8190, 8191, 8192, 100_000, 10_000_000])
    got = LogFloor(0.1, 8192, offset).at(positions)
    assert abs(got.numpy() / (1 + 0.1 * numpy.log(1 + (positions.numpy() + offset) // 8192)) - 1).max() < 3 * 2**-23
    assert torch.equal(got, torch.log1p(torch.floor((positions.float() + offset) / 8192)) * 0.1 + 1.0)
