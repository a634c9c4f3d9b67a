"""How channels hold pairs: golden layouts, permutations, and the channels that do not turn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phasor import Layout

from .conftest import anywhere, at, every_spec, turn


@st.composite
def layouts(draw, head_dim=None, rotary_dim=None):
    """Any layout there is, of given widths or any."""
    blocks = draw(st.integers(1, 4))
    rotary_dim = 2 * blocks * draw(st.integers(1, 6)) if rotary_dim is None else rotary_dim
    blocks = blocks if (rotary_dim // 2) % blocks == 0 else 1
    permuted = draw(st.booleans()) and blocks == 1
    interleaved = draw(st.booleans()) and blocks == 1
    head_dim = rotary_dim + draw(st.integers(0, 9)) if head_dim is None else head_dim
    return Layout(
        head_dim=head_dim, rotary_dim=rotary_dim, trailing=draw(st.booleans()),
        interleaved=interleaved, blocks=blocks, permuted=permuted,
    )  # fmt: skip


ANY = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def test_golden_split():
    """Halves: (i, i + P). Interleaved: (2i, 2i + 1). Blocks: halves in each."""
    x = torch.arange(8)
    assert [t.tolist() for t in Layout(head_dim=8).split(x)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [t.tolist() for t in Layout(head_dim=8, interleaved=True).split(x)] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [t.tolist() for t in Layout(head_dim=8, blocks=2).split(x)] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert [t.tolist() for t in Layout(head_dim=8, rotary_dim=4).split(x)] == [[0, 1], [2, 3]]
    last = Layout(head_dim=8, rotary_dim=4, trailing=True, interleaved=True)
    assert [t.tolist() for t in last.split(x)] == [[4, 6], [5, 7]]


def test_golden_join():
    a, b = torch.tensor([0, 1]), torch.tensor([10, 11])
    assert Layout(head_dim=4).join(a, b).tolist() == [0, 1, 10, 11]
    assert Layout(head_dim=4, interleaved=True).join(a, b).tolist() == [0, 10, 1, 11]
    assert Layout(head_dim=4, blocks=2).join(a, b).tolist() == [0, 10, 1, 11]
    assert Layout(head_dim=4, permuted=True).written().join(a, b).tolist() == [0, 10, 1, 11]
    assert Layout(head_dim=4, interleaved=True, permuted=True).written().join(a, b).tolist() == [0, 1, 10, 11]


@ANY
@given(layout=layouts(), shape=st.sampled_from([(), (3,), (2, 0), (2, 3)]))
def test_join_undoes_split(layout, shape):
    x = torch.randn(*shape, layout.head_dim)
    a, b = layout.split(x)
    assert a.shape == b.shape == (*shape, layout.pairs)
    joined = layout.join(a, b)
    assert torch.equal(joined, x[..., layout.turning])
    assert torch.equal(layout.within(x, joined), x)
    if x.numel():
        storage = x.untyped_storage().data_ptr()
        assert joined.untyped_storage().data_ptr() != storage
        assert layout.blocks > 1 or a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() == storage


def test_turning_and_passing():
    assert (Layout(head_dim=10, rotary_dim=4).turning, Layout(head_dim=10, rotary_dim=4).passing) == (
        slice(0, 4),
        slice(4, 10),
    )
    last = Layout(head_dim=10, rotary_dim=4, trailing=True)
    assert (last.turning, last.passing) == (slice(6, 10), slice(0, 6))
    assert Layout(head_dim=4, trailing=True).turning == slice(0, 4)


def test_golden_permutations():
    """To halves: even channels first (half[i] = inter[2i], half[i + d/2] = inter[2i + 1]); back: the reverse."""
    halves, interleaved = Layout(head_dim=8), Layout(head_dim=8, interleaved=True)
    assert interleaved.permutation(halves) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert halves.permutation(interleaved) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert halves.permutation(Layout(head_dim=8, blocks=2)) == [0, 1, 4, 5, 2, 3, 6, 7]
    first = {"head_dim": 8, "rotary_dim": 4}
    assert Layout(**first, interleaved=True).permutation(Layout(**first)) == [0, 2, 1, 3, 4, 5, 6, 7]
    last = first | {"trailing": True}
    assert Layout(**last, interleaved=True).permutation(Layout(**last)) == [0, 1, 2, 3, 4, 6, 5, 7]
    assert Layout(**first).permutation(Layout(**last)) == [4, 5, 6, 7, 0, 1, 2, 3]
    assert interleaved.permutation(Layout(head_dim=8, interleaved=True, permuted=True)) == list(range(8))


@ANY
@given(data=st.data(), source=layouts())
def test_permutations_are_inverse_and_move_pairs(data, source):
    target = data.draw(layouts(source.head_dim, source.rotary_dim))
    there, back = source.permutation(target), target.permutation(source)
    assert [there[i] for i in back] == list(range(source.head_dim))
    assert source.permutation(source) == list(range(source.head_dim))
    x = torch.arange(source.head_dim)
    for mine, theirs in zip(source.split(x), target.split(x[there]), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(x[source.passing], x[there][target.passing])


@ANY
@given(layout=layouts())
def test_a_permuted_layout_writes_and_its_transpose_reads_the_other(layout):
    written, back = layout.written(), layout.transposed()
    assert not written.permuted
    assert back.read() == written
    assert back.written() == layout.read()
    assert back.transposed() == layout


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@every_spec
def test_channels_outside_the_slice_are_untouched(spec, dtype):
    """To the bit, infinities, NaN and negative zeros included; and every pair inside does move."""
    x = torch.randn(3, spec.head_dim).to(dtype)
    inside = torch.zeros(spec.head_dim, dtype=torch.bool)
    inside[spec.layout.turning] = True
    outside = torch.arange(spec.head_dim)[~inside]
    if len(outside):
        x[0, outside[0]], x[1, outside[-1]], x[2, outside[0]] = torch.inf, -torch.nan, -0.0
    y = turn(x, at(spec, anywhere(spec, 100, 5000, 3), dtype))
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
    assert torch.equal(y[:, ~inside].view(bits), x[:, ~inside].view(bits))
    assert y.dtype == dtype
    assert not torch.equal(y[:, inside], x[:, inside])
