from types import SimpleNamespace

import pytest
import torch

from phasor.encodings.attention import attention

POSITIONS = torch.tensor([0, 1, 2, 9, 4, 30])


def naive(q, k, v, encoding, positions, scale):
    """Shaw et al. 2018, eq. 3-5, one query and key at a time, not causal."""
    a_k, a_v = encoding.key_table.weight.double(), encoding.value_table.weight.double()
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i, m in enumerate(positions.tolist()):
                c = [max(-2, min(n - m, 2)) + 2 for n in positions.tolist()]
                logits = torch.stack([q[b, h, i] @ (k[b, h, j] + a_k[c[j]]) * scale for j in range(len(c))])
                weights = logits.softmax(0)
                out[b, h, i] = sum(weights[j] * (v[b, h, j] + a_v[c[j]]) for j in range(len(c)))
    return out


def test_equals_the_loop_over_pairs(make_encoding, make_qkv):
    q, k, v = make_qkv(len(POSITIONS))
    encoding = make_encoding("shaw")
    ours = attention(q, k, v, encoding, q_positions=POSITIONS, causal=False, scale=0.3)
    torch.testing.assert_close(ours, naive(q, k, v, encoding, POSITIONS, 0.3))
    # the sign of the distance matters: reading the table from its other end is another function
    with torch.no_grad():
        encoding.key_table.weight.copy_(encoding.key_table.weight.flip(0))
    assert (attention(q, k, v, encoding, q_positions=POSITIONS, causal=False, scale=0.3) - ours).abs().max() > 1e-2


def test_relative_key_of_wav2vec2_bert(make_encoding, make_qkv):
    theirs = pytest.importorskip("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
    encoding = make_encoding("shaw keys only").double()
    q, k, _ = make_qkv(9)
    module = SimpleNamespace(
        left_max_position_embeddings=3,
        right_max_position_embeddings=1,
        distance_embedding=encoding.key_table,
        scaling=0.25,
    )
    _, expected = theirs._apply_relative_key_position_encoding(module, q, k)
    t = torch.arange(9)
    torch.testing.assert_close(encoding.bias(q, k, t, t, 0.25), expected)
