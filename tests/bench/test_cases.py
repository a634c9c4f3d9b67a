"""Every case times a rotation: what it returns is what the reference kernel returns, and what its peer does."""

from itertools import pairwise

import pytest
import torch
from timing import CASES
from timing.measure import DTYPES, Variant, measure
from timing.run import named
from torch import Tensor

CELLS = [
    pytest.param(case, dtype, layout, id=f"{case.name}-{dtype}-{layout}")
    for case in CASES
    if not case.obstacle()  # a peer that is not installed
    for dtype in case.dtypes
    for layout in case.layouts
]
PEERS = [cell for cell in CELLS if cell.values[0].unit == "phasor"]
# one rounding apart, and in half precision the peers round their tables, and some every product
ROUNDINGS = {"float32": 2.0**-22, "bfloat16": 2.0**-5, "float16": 2.0**-8}


def returned(case, dtype: str, layout: str, name: str, kernel: str = "auto") -> list[Tensor]:
    """What one call returns, on tensors of its own: of a case in place, too, as if it were the first."""
    with torch.set_grad_enabled(case.gradient):
        torch.manual_seed(0)
        found = case.make(Variant(DTYPES[dtype], layout == "interleaved", kernel, quick=True))[name]()
    return [found] if isinstance(found, Tensor) else list(found)


@pytest.mark.parametrize("case, dtype, layout", CELLS)
def test_phasor_returns_what_the_reference_does(case, dtype, layout):
    ours = "patched" if "llama" in case.name else "phasor"
    found, due = (returned(case, dtype, layout, ours, kernel) for kernel in ("auto", "reference"))
    assert len(found) == len(due) >= 1
    for one, other in zip(found, due, strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(
            one, other, rtol=0, atol=float(other.abs().max()) * 2 * torch.finfo(DTYPES[dtype]).eps
        )


@pytest.mark.parametrize("case, dtype, layout", PEERS)
def test_a_peer_does_the_same(case, dtype, layout):
    theirs = returned(case, dtype, layout, case.measured)
    for one, other in zip(theirs, returned(case, dtype, layout, "phasor"), strict=True):
        torch.testing.assert_close(one, other.reshape(one.shape), rtol=0, atol=8 * ROUNDINGS[dtype])


@pytest.mark.parametrize("case, dtype, layout", [cell for cell in CELLS if "llama" in cell.values[0].name])
def test_the_three_llamas(case, dtype, layout):
    patched, unpatched, none = (returned(case, dtype, layout, name) for name in ("patched", "unpatched", "none"))
    if case.name in ("llama-generate", "llama-inference"):
        assert patched[0].shape == unpatched[0].shape == none[0].shape
        return
    assert all(torch.allclose(a, b, atol=0.02) for a, b in zip(patched, unpatched, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(unpatched, none, strict=True))  # without rotation it is another
    assert all(torch.equal(a, b) for a, b in zip(unpatched, returned(case, dtype, layout, "unpatched"), strict=True))


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in CASES if case.unit != "phasor" and not case.obstacle()]
)
def test_every_case_is_measured(case):
    dtype = case.dtypes[0]
    rows = measure(case, dtype, case.layouts[0], memory="as found", rounds=2, quick=True)
    assert (rows[0].case, rows[0].dtype, rows[0].measured, rows[0].unit) == (case.name, dtype, case.measured, case.unit)
    assert rows[0].goal is not None and rows[0].ratio > 0 and rows[0].us > 0 and rows[0].unit_us > 0


@pytest.mark.parametrize("name", ["given", "in-place", "rounded", "token-in-place", "token-out", "batch-4", "width-80"])
def test_outputs_that_exist_are_what_is_written(name):
    (case,) = named([name])
    with torch.no_grad():
        call = case.make(Variant(torch.bfloat16, quick=True))["phasor"]
        first, second = call(), call()
    assert [x.data_ptr() for x in first] == [x.data_ptr() for x in second]


@pytest.mark.parametrize("name", ["token", "batch"])
def test_decoding_goes_on(name):
    """What is kept from one step for the same position would be measured as if it were no work."""
    (case,) = named([name])
    with torch.no_grad():
        call = case.make(Variant(torch.float32, quick=True))["phasor"]
        results = [call()[0] for _ in range(5)]
    assert all(not torch.equal(a, b) for a, b in pairwise(results))


def test_full_sizes_are_those_of_the_table():
    with torch.no_grad():
        (case,) = named(["batch"])
        q, k = case.make(Variant(torch.float16))["clone"]()
        assert (q.shape, k.shape) == ((64, 32, 1, 128), (64, 8, 1, 128))
        (case,) = named(["prefill"])
        q, k = case.make(Variant(torch.float16))["clone"]()
        assert (q.shape, k.shape) == ((1, 32, 4096, 128), (1, 8, 4096, 128))
    (case,) = named(["training"])
    q, k = case.make(Variant(torch.float32))["x * 1.0"]()
    assert q.shape == k.shape == (4, 16, 1024, 64)


def test_names():
    assert len({case.name for case in CASES}) == len(CASES) and named([]) == CASES
    with pytest.raises(
        ValueError, match=r"--cases must be names out of prefill, .*, with commas between, got 'decode'"
    ):
        named(["token", "decode"])
