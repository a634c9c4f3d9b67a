"""How channels hold pairs: golden layouts, permutations, and the channels that do not turn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.pairs import join, permutation, rotary_slice, split

from .conftest import anywhere, at, turn


def test_golden_split():
    """Halves: (i, i + P). Interleaved: (2i, 2i + 1)."""
    x = torch.arange(6)
    assert [t.tolist() for t in split(x, interleaved=False)] == [[0, 1, 2], [3, 4, 5]]
    assert [t.tolist() for t in split(x, interleaved=True)] == [[0, 2, 4], [1, 3, 5]]


def test_golden_join():
    a, b = torch.tensor([0, 1, 2]), torch.tensor([10, 11, 12])
    assert join(a, b, interleaved=False).tolist() == [0, 1, 2, 10, 11, 12]
    assert join(a, b, interleaved=True).tolist() == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", [(2,), (3, 10), (2, 0, 4), (0,)])
def test_join_undoes_split(interleaved, shape):
    x = torch.randn(shape)
    a, b = split(x, interleaved)
    assert torch.equal(join(a, b, interleaved), x)
    if x.numel():
        assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert join(a, b, interleaved).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_rotary_slice():
    assert rotary_slice(10, 4, trailing=False) == slice(0, 4)
    assert rotary_slice(10, 4, trailing=True) == slice(6, 10)
    assert rotary_slice(4, 4, trailing=True) == slice(0, 4)


def test_golden_permutations():
    """To halves: even channels first (half[i] = inter[2i], half[i + d/2] = inter[2i + 1]); back: the reverse."""
    to_halves = permutation(8, source_interleaved=True, target_interleaved=False)
    assert to_halves.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert permutation(8, source_interleaved=False, target_interleaved=True).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    part = permutation(8, source_interleaved=True, target_interleaved=False, rotary_dim=4)
    assert part.tolist() == [0, 2, 1, 3, 4, 5, 6, 7]
    last = permutation(8, source_interleaved=True, target_interleaved=False, rotary_dim=4, trailing=True)
    assert last.tolist() == [0, 1, 2, 3, 4, 6, 5, 7]
    for same in (False, True):
        assert permutation(8, source_interleaved=same, target_interleaved=same).tolist() == list(range(8))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(half=st.integers(1, 20), extra=st.integers(0, 9), trailing=st.booleans(), a=st.booleans(), b=st.booleans())
def test_permutations_are_inverse(half, extra, trailing, a, b):
    place = {"rotary_dim": 2 * half, "trailing": trailing}
    there = permutation(2 * half + extra, source_interleaved=a, target_interleaved=b, **place)
    back = permutation(2 * half + extra, source_interleaved=b, target_interleaved=a, **place)
    assert torch.equal(there[back], torch.arange(2 * half + extra))
    assert torch.equal(there.sort().values, torch.arange(2 * half + extra))
    if extra:
        outside = there[:extra] if trailing else there[2 * half :]
        expected = torch.arange(extra) + (0 if trailing else 2 * half)
        assert torch.equal(outside, expected)


@pytest.mark.parametrize("trailing", [False, True])
@pytest.mark.parametrize("rotary_dim", [8, 4])
@pytest.mark.parametrize("source", [False, True])
def test_converted_weights_give_the_same_scores(source, rotary_dim, trailing):
    """Permuting the rows of the q and k projections changes the layout and not the model; v stays."""
    heads, head_dim, width = 3, 8, 12
    wq, wk = torch.randn(2, heads, head_dim, width, dtype=torch.float64)
    x = torch.randn(5, width, dtype=torch.float64)
    place = {"rotary_dim": rotary_dim, "trailing": trailing}

    def scores(wq, wk, interleaved):
        spec = RotarySpec(head_dim=head_dim, interleaved=interleaved, **place)
        rotation = Rotation.at(spec, torch.arange(5) + 100, dtype=torch.float64)
        q, k = (apply_rotary(x @ w.mT, rotation) for w in (wq, wk))
        return q @ k.mT

    p = permutation(head_dim, source_interleaved=source, target_interleaved=not source, **place)
    before, after = scores(wq, wk, source), scores(wq[:, p], wk[:, p], not source)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-12)
    assert (scores(wq, wk, not source) - before).abs().max() > 0.1  # the layouts confused: visibly another model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_channels_outside_the_slice_are_untouched(spec, dtype):
    """To the bit, infinities, NaN and negative zeros included; and every pair inside does move."""
    x = torch.randn(3, spec.head_dim).to(dtype)
    inside = torch.zeros(spec.head_dim, dtype=torch.bool)
    inside[rotary_slice(spec.head_dim, spec.rotary_dim, spec.trailing)] = True
    outside = torch.arange(spec.head_dim)[~inside]
    if len(outside):
        x[0, outside[0]], x[1, outside[-1]], x[2, outside[0]] = torch.inf, -torch.nan, -0.0
    y = turn(x, at(spec, anywhere(spec, 100, 5000, 3), dtype))
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
    assert torch.equal(y[:, ~inside].view(bits), x[:, ~inside].view(bits))
    assert y.dtype == dtype
    assert not torch.equal(y[:, inside], x[:, inside])
