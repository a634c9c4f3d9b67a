import pytest
import torch

from phasor.encodings import T5Bias, t5_bucket
from phasor.encodings.attention import attention

# Raffel et al. 2019 with 32 buckets up to 128: the last distance in each bucket from the first that holds several
CAUSAL_ENDS = [18, 20, 23, 26, 30, 34, 39, 45, 51, 58, 66, 76, 86, 98, 112]
BIDIRECTIONAL_ENDS = [11, 15, 22, 31, 45, 63, 90]


def table(ends: list[int], exact: int, length: int = 400) -> list[int]:
    return [r if r < exact else exact + sum(r > end for end in ends) for r in range(length)]


def test_published_table():
    past = -torch.arange(400)
    assert t5_bucket(past, bidirectional=False).tolist() == table(CAUSAL_ENDS, 16)
    both = table(BIDIRECTIONAL_ENDS, 8)
    assert t5_bucket(past, bidirectional=True).tolist() == both
    assert t5_bucket(-past[1:], bidirectional=True).tolist() == [16 + b for b in both[1:]]
    assert t5_bucket(-past, bidirectional=False).tolist() == [0] * 400


@pytest.mark.parametrize("distance, bucket", [(16, 10), (32, 12), (64, 14)])
def test_whole_logarithms_fall_on_the_right_side(distance, bucket):
    # ln(16/8) / ln(128/8) * 8 = 2 exactly, and 4 and 6 for 32 and 64
    around = -torch.tensor([distance - 1, distance])
    assert t5_bucket(around, bidirectional=True).tolist() == [bucket - 1, bucket]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (320, 800), (32, 256), (64, 512), (32, 100)])
def test_transformers_t5(bidirectional, num_buckets, max_distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    relative = torch.arange(-3000, 3001)
    sizes = {"bidirectional": bidirectional, "num_buckets": num_buckets, "max_distance": max_distance}
    assert torch.equal(t5_bucket(relative, **sizes), t5._relative_position_bucket(relative, **sizes))


def test_whole_attention_layer_of_transformers():
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(d_model=12, d_kv=4, num_heads=3, dropout_rate=0.0, is_decoder=False)
    layer = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double().eval()
    encoding = T5Bias(3, bidirectional=True)
    encoding.table.load_state_dict(layer.relative_attention_bias.state_dict())
    x, t = torch.randn(2, 40, 12, dtype=torch.float64), torch.arange(40)
    q, k, v = (w(x).unflatten(-1, (3, 4)).transpose(1, 2) for w in (layer.q, layer.k, layer.v))
    ours = attention(q, k, v, encoding.double(), q_positions=t, causal=False, scale=1.0)
    theirs = layer(x)[0]
    torch.testing.assert_close(layer.o(ours.transpose(1, 2).flatten(2)), theirs)
    scaled = attention(q, k, v, encoding, q_positions=t, causal=False, scale=0.5)
    assert (layer.o(scaled.transpose(1, 2).flatten(2)) - theirs).abs().max() > 1e-3
