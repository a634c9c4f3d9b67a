"""What all encodings share: the hooks, no hidden state, and their place in attention's arithmetic."""

import copy
import pickle

import pytest
import torch

from phasor import RotarySpec
from phasor.encodings import Rotary, T5Bias


def test_survives_copy_pickle_low_precision_and_meta(encoding, make_qkv):
    q, k, _ = make_qkv(4, dtype=torch.float32)
    t = torch.arange(4)
    expected = encoding.bias(*encoding.rotate(q, k, t, t), t, t, 1.0)
    for twin in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
        again = twin.bias(*twin.rotate(q, k, t, t), t, t, 1.0)
        assert (again is None and expected is None) or torch.equal(again, expected)
    half = copy.deepcopy(encoding).to(torch.bfloat16)
    bias = half.bias(*half.rotate(q.bfloat16(), k.bfloat16(), t, t), t, t, 1.0)
    assert bias is None or bias.dtype == torch.float32


def test_one_row_of_positions_is_the_same_as_a_row_for_each_sequence(encoding, make_qkv):
    q, k, _ = make_qkv(5)
    m, n = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2, 6, 5, 3])
    rows = (m.expand(2, -1), n.expand(2, -1))
    for one, both in zip(encoding.rotate(q, k, m, n), encoding.rotate(q, k, *rows), strict=True):
        assert torch.equal(one, both)
    bias = encoding.bias(q, k, m, n, 0.5)
    if bias is not None:
        torch.testing.assert_close(bias.expand(2, 4, 5, 5), encoding.bias(q, k, *rows, 0.5))
    weights = torch.rand(2, 4, 5, 5, dtype=torch.float64)
    values = encoding.values(weights, m, n)
    assert (values is None) == (not encoding.needs_weights)
    if values is not None:
        torch.testing.assert_close(values, encoding.values(weights, *rows))


def test_relative_encodings_see_distances_only(encoding, make_qkv):
    q, k, _ = make_qkv(5)

    def logits(t):
        q_, k_ = encoding.rotate(q, k, t, t)
        bias = encoding.bias(q_, k_, t, t, 1.0)
        return q_ @ k_.mT + (0 if bias is None else bias)

    # phases carry |t| 2**-65 turns: below 2e-10 rad at 1e9
    near = torch.arange(5)
    torch.testing.assert_close(logits(near), logits(near + 10**9), rtol=0, atol=1e-7)


def test_can_be_built_on_meta_and_filled_in_later(make_encoding):
    for name in ("t5 encoder", "shaw", "transformer-xl"):
        with torch.device("meta"):
            encoding = make_encoding(name)
        encoding = encoding.to_empty(device="cpu")
        encoding.reset_parameters()
        x, t = torch.randn(1, 4, 3, 8), torch.arange(3)
        assert encoding.bias(x, x, t, t, 1.0).isfinite().all()


def test_default_scale_is_one_over_root_head_dim(encoding):
    if isinstance(encoding, T5Bias):
        with pytest.raises(ValueError, match="scale must be given with T5Bias"):
            encoding.default_scale(64)
    else:
        assert encoding.default_scale(64) == 1 / 8


def test_rotary_fixes_the_length_of_length_dependent_scalings(make_qkv):
    from phasor import rotate, scaling

    spec = RotarySpec(head_dim=8, scaling=scaling.DynamicNTK(2.0, original_max_position=4))
    q, k, _ = make_qkv(3)
    t = torch.arange(3)
    expected = rotate(q, k, t, spec, seq_len=16)
    for own_keys in (t, t.clone()):  # the same tokens, or keys with positions of their own
        for ours, theirs in zip(Rotary(spec, seq_len=16).rotate(q, k, t, own_keys), expected, strict=True):
            assert torch.equal(ours, theirs)
    with pytest.raises(ValueError, match="seq_len"):
        Rotary(spec).rotate(q, k, t, t)
