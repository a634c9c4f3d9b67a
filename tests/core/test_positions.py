"""Position builders against naive loops; those of models stand in `positions/test_families.py`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phasor import positions

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@SETTINGS
@given(LENGTHS)
def test_packed(lengths):
    bounds = [0]
    for length in lengths:
        bounds.append(bounds[-1] + length)
    for dtype in (torch.int32, torch.int64):
        got = positions.packed(torch.tensor(bounds, dtype=dtype))
        assert got.dtype == torch.int64
        assert got.tolist() == [i for length in lengths for i in range(length)]


def test_packed_refuses_bounds_that_fall_once():
    with pytest.raises(ValueError, match=r"cu_seqlens must start at 0 and never fall .*, got \[0, 5, 3, 7\]"):
        positions.packed(torch.tensor([0, 5, 3, 7]))


@SETTINGS
@given(st.integers(0, 4).flatmap(lambda s: st.lists(st.lists(st.booleans(), min_size=s, max_size=s), min_size=1)))
def test_from_mask(rows):
    expected = []
    for row in rows:
        count, line = 0, []
        for real in row:
            line.append(count if real else 0)
            count += real
        expected.append(line)
    for dtype in (torch.bool, torch.int64, torch.float32):
        got = positions.from_mask(torch.tensor(rows, dtype=dtype).reshape(len(rows), -1))
        assert got.dtype == torch.int64
        assert got.tolist() == expected


@SETTINGS
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=5), st.integers(1, 5))
def test_decode(cached, new):
    got = positions.decode(torch.tensor(cached), new)
    assert got.dtype == torch.int64
    assert got.tolist() == [[c + i for i in range(new)] for c in cached]
    assert torch.equal(positions.decode(torch.tensor(cached, dtype=torch.int32), new), got)


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_text(axes):
    token = torch.randint(0, 99, (2, 5))
    got = positions.text(token, axes=axes)
    assert got.shape == (axes, 2, 5)
    assert all(torch.equal(row, token) for row in got)
    assert positions.text(token).shape == (3, 2, 5)


@SETTINGS
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(-5, 1000))
def test_grid(sizes, start):
    cells = [[]]
    for size in sizes:
        cells = [[*cell, start + i] for cell in cells for i in range(size)]
    got = positions.grid(*sizes, start=start)
    assert got.dtype == torch.int64
    assert got.tolist() == [list(axis) for axis in zip(*cells, strict=True)]


def naive_mrope(segments):
    """Qwen2-VL, section 2.1, one token at a time: what follows starts at the largest number so far plus one."""
    tokens, start = [], 0
    for segment in segments:
        if isinstance(segment, int):
            new = [(start + i,) * 3 for i in range(segment)]
        else:
            t, h, w = (1, *segment)[-3:]
            new = [(start + a, start + b, start + c) for a in range(t) for b in range(h) for c in range(w)]
        tokens += new
        start = max(max(token) for token in tokens) + 1
    return [list(axis) for axis in zip(*tokens, strict=True)]


SEGMENTS = st.lists(
    st.one_of(
        st.integers(1, 6),
        st.tuples(st.integers(1, 4), st.integers(1, 4)),
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=6,
)


@SETTINGS
@given(SEGMENTS)
def test_mrope(segments):
    got = positions.mrope(segments)
    assert got.dtype == torch.int64
    assert got.tolist() == naive_mrope(segments)


def test_builders_ignore_the_default_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        built = [
            positions.packed(torch.tensor([0, 300])),
            positions.from_mask(torch.ones(1, 300)),
            positions.decode(torch.tensor([299])),
            positions.grid(300, 1),
            positions.mrope([300]),
        ]
    finally:
        torch.set_default_dtype(torch.float32)
    assert [(p.dtype, int(p.max())) for p in built] == [(torch.int64, 299)] * 5
