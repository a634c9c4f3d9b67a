"""Every case times a rotation: what it returns is what the reference kernel returns, and what its peer does."""

from itertools import pairwise

import pytest
import torch
from timing import CASES
from timing.measure import DTYPES, Work
from timing.run import named
from timing.ways import calls
from torch import Tensor

CELLS = [
    pytest.param(case, dtype, layout, id=f"{case.name}-{dtype}-{layout}")
    for case in CASES
    if not case.obstacle()  # a peer that is not installed
    for dtype in case.dtypes
    for layout in case.layouts
]
# one rounding apart, and in half precision the peers round their tables, and some every product
ROUNDINGS = {"float32": 2.0**-22, "bfloat16": 2.0**-5, "float16": 2.0**-8}


def returned(case, dtype: str, layout: str, name: str, kernel: str = "auto") -> list[Tensor]:
    """What one call returns, on tensors of its own: of a case in place, too, as if it were the first."""
    with torch.set_grad_enabled(case.gradient):
        torch.manual_seed(0)
        found = calls(Work(case, DTYPES[dtype], layout == "interleaved", kernel, quick=True))[name]()
    return [found] if isinstance(found, Tensor) else list(found)


@pytest.mark.parametrize("case, dtype, layout", CELLS)
def test_phasor_returns_what_the_reference_does(case, dtype, layout):
    ours = "patched" if "llama" in case.name else "phasor"
    found, due = (returned(case, dtype, layout, ours, kernel) for kernel in ("auto", "reference"))
    assert len(found) == len(due) >= 1
    for one, other in zip(found, due, strict=True):
        assert one.abs().sum() > 0
        most = float(other.abs().max()) * 2 * torch.finfo(DTYPES[dtype]).eps
        torch.testing.assert_close(one, other, rtol=0, atol=most)


@pytest.mark.parametrize("case, dtype, layout", [cell for cell in CELLS if cell.values[0].unit == "phasor"])
def test_a_peer_does_the_same(case, dtype, layout):
    theirs, ours = (returned(case, dtype, layout, name)[:2] for name in (case.measured, "phasor"))
    for one, other in zip(theirs, ours, strict=True):  # of q and k: a weight's gradient is a sum over all tokens
        torch.testing.assert_close(one, other.reshape(one.shape), rtol=0, atol=8 * ROUNDINGS[dtype])


@pytest.mark.parametrize("name", ["llama-prefill", "llama-generate"])
def test_a_patched_llama_gives_what_the_other_does(name):
    cell = named([name])[0], "float32", "halves"
    patched, unpatched = (returned(*cell, name) for name in ("patched", "unpatched"))
    assert all(torch.allclose(a, b, atol=0.02) for a, b in zip(patched, unpatched, strict=True))


@pytest.mark.parametrize("name", ["given", "in-place", "rounded"])
def test_outputs_that_exist_are_what_is_written(name):
    call = calls(Work(named([name])[0], torch.bfloat16, quick=True))["phasor"]
    assert [x.data_ptr() for x in call()] == [x.data_ptr() for x in call()]


@pytest.mark.parametrize("name", ["token", "batch"])
def test_decoding_goes_on(name):
    """What is kept from one step for the same position would be measured as if it were no work."""
    call = calls(Work(named([name])[0], torch.float32, quick=True))["phasor"]
    assert all(not torch.equal(a[0], b[0]) for a, b in pairwise(call() for _ in range(5)))
