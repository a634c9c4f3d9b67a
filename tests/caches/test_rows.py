"""A row keeps its bits beside rows of any length: the logits of a model in batches of one shape.

A batch of another shape goes through other matrix products, whose sums are rounded in another order: that is not the
encoding, and no encoding can mend it.
"""

import pytest
import torch

transformers = pytest.importorskip("transformers")

import phasor  # noqa: E402
from integrations.models import causal, tokens  # noqa: E402

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}


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
