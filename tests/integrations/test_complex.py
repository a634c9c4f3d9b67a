"""Models that multiply complex numbers: phasor forms their tables, to the bit, and their own code multiplies."""

import pytest
import torch

from phasor import Rotation, patch, read_config, unpatch
from phasor.tools.patch.report import COMPLEX as REASON

from .models import COMPLEX, causal, logits, tokens

transformers = pytest.importorskip("transformers")

TOKENS = (1, 2, 5, 8, 13, 64)  # with and without a rest beside the vectors of a CPU
POSITIONS = torch.arange(4096)


def rotary(model):
    return model.model.rotary_emb


@pytest.fixture(params=COMPLEX)
def family(request):
    return request.param


def test_tables_are_formed_to_the_bit_and_the_product_is_left(family):
    model = causal(family)
    own = [rotary(model)(torch.zeros(1), (31 * POSITIONS)[None, :n]) for n in (*TOKENS, 4096)]
    report = patch(model)
    assert {(row.what, row.replaced, row.reason) for row in report.rows} == {
        ("tables", True, ""), ("apply_rotary_emb", False, REASON)
    }  # fmt: skip
    assert report.rows[0].agreement == "bit-equal"
    for n, table in zip((*TOKENS, 4096), own, strict=True):
        assert torch.equal(rotary(model)(torch.zeros(1), (31 * POSITIONS)[None, :n]), table)


def test_cos_and_sin_come_from_the_function_that_they_call(family, monkeypatch):
    """torch.polar, whatever bits it has on this machine: those of torch.cos may be the same."""
    own = torch.polar
    monkeypatch.setattr(torch, "polar", lambda size, angle: own(size * (1 + 2**-20), angle))
    assert patch(causal(family)).rows[0].agreement == "bit-equal"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pairs", [3, 5, 8])
def test_logits_stay_to_the_bit_for_every_number_of_pairs_and_tokens(family, pairs, dtype):
    width = {"head_dim": 2 * pairs} if family == "llama4" else {"qk_rope_head_dim": 2 * pairs}
    model = causal(family, dtype=dtype, **width)
    before = [logits(model, tokens(length=n)) for n in TOKENS]
    assert patch(model).replaced == 1
    assert all(torch.equal(logits(model, tokens(length=n)), b) for n, b in zip(TOKENS, before, strict=True))


def test_a_factor_of_yarn_is_multiplied_as_they_do(family):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e4}
    model = causal(family, rope_parameters=yarn)
    assert rotary(model).attention_scaling != 1
    assert patch(model).rows[0].agreement == "bit-equal"


def test_exact_angles_reach_their_product(family):
    model = causal(family)
    before = logits(model)
    report = patch(model, angles="exact")
    assert report.rows[0].replaced and not torch.equal(logits(model), before)
    far = torch.tensor([[2_000_000_000]])
    exact = Rotation.at(read_config(model.config).layers[0], far)
    assert torch.equal(rotary(model)(torch.zeros(1), far), torch.complex(exact.cos, exact.sin))
    unpatch(model)
    assert torch.equal(logits(model), before)


def test_the_tower_of_llama_4_is_left_and_says_why():
    config = transformers.Llama4VisionConfig(
        hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14,
        vision_output_dim=64, projector_input_dim=64, projector_output_dim=64,
    )  # fmt: skip
    report = patch(transformers.Llama4VisionModel(config))
    assert {(row.what, row.reason) for row in report.rows} == {
        ("tables", "it forms its tables from hidden_states, not from position_ids"),
        ("vision_apply_rotary_emb", REASON),
    }
    assert report.replaced == 0 and "multiplies complex numbers" in str(report)
