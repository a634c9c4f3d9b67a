"""apply_rotary: how positions, dtypes and tables come in; what it is by definition: `test_algebra`."""

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary, apply_rotary_qk, rotate

from .conftest import SEQ_LEN, anywhere, at

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_qk_is_each_alone_and_rotate_is_both(few, dtype):
    q, k = torch.randn(2, 4, 7, few.head_dim).to(dtype), torch.randn(2, 2, 7, few.head_dim).to(dtype)
    for batch in ((), (2,)):
        positions = anywhere(few, 0, 5000, 7, *batch)
        rotation = at(few, positions, dtype)
        a, b = apply_rotary_qk(q, k, rotation)
        assert torch.equal(a, apply_rotary(q, rotation))
        assert torch.equal(b, apply_rotary(k, rotation))
        c, d = rotate(q, k, positions, few, seq_len=SEQ_LEN)
        assert torch.equal(a, c)
        assert torch.equal(b, d)
        e, f = rotate(q.transpose(1, 2), k.transpose(1, 2), positions, few, seq_len=SEQ_LEN, tensor_format="bshd")
        assert torch.equal(e.transpose(1, 2), a)
        assert torch.equal(f.transpose(1, 2), b)


def test_positions_per_row(few):
    """[batch, seq] positions: each row of the batch by its own, as if it were alone."""
    x, positions = torch.randn(3, 2, 7, few.head_dim), anywhere(few, 0, 5000, 7, 3)
    y = apply_rotary(x, at(few, positions, torch.float32))
    for row in range(3):
        mine = positions[row] if few.axes.count == 1 else positions[:, row]
        assert torch.equal(y[row], apply_rotary(x[row], at(few, mine, torch.float32)))


def test_one_row_of_positions_serves_a_batch(few):
    x, positions = torch.randn(3, 2, 7, few.head_dim), anywhere(few, 0, 5000, 7, 1)
    flat = positions.squeeze(-2)
    shared, single = at(few, positions, torch.float32), at(few, flat, torch.float32)
    assert torch.equal(apply_rotary(x, shared), apply_rotary(x, single))
    extra = torch.randn(4, 3, 2, 7, few.head_dim)
    rows = at(few, anywhere(few, 0, 5000, 7, 3), torch.float32)
    y = apply_rotary(extra, rows)
    for i in range(4):
        assert torch.equal(y[i], apply_rotary(extra[i], rows))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_of_the_tables(dtype):
    """Exact angles: float64 tables for float64, else float32. Float32 angles: as `tables` says."""
    positions = torch.arange(5)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    exact = RotarySpec(head_dim=8)
    assert Rotation.at(exact, positions, dtype=dtype).cos.dtype == wide
    for tables, expected in (("activation", dtype), ("float32", None), ("rounded", wide)):
        rotation = Rotation.at(exact.replace(angles="float32", tables=tables), positions, dtype=dtype)
        assert rotation.cos.dtype == rotation.sin.dtype == (expected or torch.float32)
    if dtype.itemsize == 2:
        rounded = Rotation.at(exact.replace(angles="float32", tables="rounded"), positions, dtype=dtype)
        full = Rotation.at(exact.replace(angles="float32", tables="float32"), positions, dtype=dtype)
        assert torch.equal(rounded.cos, full.cos.to(dtype).float())
        assert not torch.equal(rounded.cos, full.cos)


def test_tables_do_not_matter_to_exact_angles():
    spec, x = RotarySpec(head_dim=8), torch.randn(1, 1, 5, 8).bfloat16()
    activation, *others = (
        apply_rotary(x, Rotation.at(spec.replace(tables=tables), torch.arange(5), dtype=x.dtype))
        for tables in ("activation", "float32", "rounded")
    )
    assert all(torch.equal(activation, other) for other in others)
