"""apply_rotary: how positions, dtypes and tables come in; what it is by definition: `test_algebra`."""

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


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
