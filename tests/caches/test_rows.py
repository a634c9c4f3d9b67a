"""A row keeps its bits beside rows of any length: its rotation, and the logits of a model in batches of one shape.

A batch of another shape goes through other matrix products, whose sums are rounded in another order: that is not the
encoding, and no encoding can mend it.
"""

import pytest
import torch

transformers = pytest.importorskip("transformers")

import phasor  # noqa: E402
from integrations.models import causal, tokens  # noqa: E402
from phasor.rotary.scaling import DynamicNTK, LongRoPE  # noqa: E402

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
SPECS = [
    phasor.RotarySpec(head_dim=8, scaling=s)
    for s in (DynamicNTK(2.0, 16), LongRoPE((1.0,) * 4, (1.0, 2.0, 3.0, 4.0), 16, 4.0, attention=1.2))
]


@pytest.mark.parametrize("spec", SPECS, ids=["dynamic", "longrope"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kernel", ["auto", "reference", "eager"])
def test_the_rotation_of_a_row_is_that_of_the_row_alone(spec, dtype, kernel):
    x, at, lengths = torch.randn(3, 4, 40, 8).to(dtype), torch.arange(40), [12, 40, 3000]
    together = phasor.Rotation.at(spec, at.expand(3, -1), lengths, dtype=dtype)
    y = phasor.apply_rotary(x, together, kernel=kernel)
    for row, length in enumerate(lengths):
        alone = phasor.Rotation.at(spec, at[:12], length, dtype=dtype)
        assert torch.equal(y[row, :, :12], phasor.apply_rotary(x[row, :, :12], alone, kernel=kernel))


@torch.no_grad()
def test_logits_of_a_row_do_not_depend_on_the_length_of_others():
    """To the bit where the batch has one shape; alone but for the order in which matrix products sum."""
    ids, n = tokens(3, 60), 12
    beside = [ids, torch.cat((ids[:1], ids[1:].flip(0, 1)))]  # row 0, and after its end whatever
    logits = []
    for batch, lengths in zip(beside, ([n, 60, 33], [n, 16, 4000]), strict=True):
        model = causal("llama", rope_parameters=DYNAMIC, max_position_embeddings=16)
        phasor.patch(model, seq_len=lengths)
        logits.append(model(batch).logits[0, :n])
    assert torch.equal(*logits)
    plain = causal("llama", rope_parameters=DYNAMIC, max_position_embeddings=16)
    alone = plain(ids[:1, :n]).logits[0]
    torch.testing.assert_close(logits[0], alone, rtol=0, atol=1e-5)
    assert float((plain(ids).logits[0, :n] - alone).abs().max()) > 1e-4  # what a shared length does
