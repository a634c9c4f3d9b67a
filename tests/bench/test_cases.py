"""Every case times a rotation: what it returns is what the reference kernel returns, and what its peer does."""

from itertools import pairwise

import pytest
import torch
from timing import CASES
from timing.cases import LAW
from timing.measure import DTYPES, Work
from timing.run import named
from timing.ways import calls
from torch import Tensor

# Of the law a case has every dtype and every layout once, all cases together every pair of them; the others are slow.
CELLS = [
    pytest.param(
        case, dtype, layout, id=f"{case.name}-{dtype}-{layout}",
        marks=[pytest.mark.slow] * (case in LAW and (n + i + j) % 3 > 0),
    )
    for n, case in enumerate(CASES)
    if not case.obstacle()  # a peer that is not installed
    for i, dtype in enumerate(case.dtypes)
    for j, layout in enumerate(case.layouts)
]  # fmt: skip
# one rounding apart, and in half precision the peers round their tables, and some every product
ROUNDINGS = {"float32": 2.0**-22, "bfloat16": 2.0**-5, "float16": 2.0**-8}


def made(case, dtype: str, layout: str, kernel: str = "auto"):
    torch.manual_seed(0)
    return calls(Work(case, DTYPES[dtype], layout, kernel, quick=True))


def returned(case, dtype: str, layout: str, kernel: str = "auto") -> dict[str, list[Tensor]]:
    """What each call returns, on tensors of its own: of a case in place, too, as if it were the first."""
    with torch.set_grad_enabled(case.gradient):
        found = {name: call() for name, call in made(case, dtype, layout, kernel).items()}
    return {name: [x] if isinstance(x, Tensor) else list(x) for name, x in found.items()}


@pytest.mark.parametrize("case, dtype, layout", CELLS)
def test_phasor_returns_what_the_reference_does(case, dtype, layout):
    auto, reference = (returned(case, dtype, layout, kernel) for kernel in ("auto", "reference"))
    ours = (
        ["patched"] if "llama" in case.name else [n for n in auto if n not in (case.unit, case.measured)] or ["phasor"]
    )
    assert len(ours) == (1 if case not in LAW else 10 if dtype == "float32" else 11)
    for name in ours:
        assert auto[name]
        for one, other in zip(auto[name], reference[name], strict=True):
            assert one.abs().sum() > 0
            most = float(other.abs().max()) * 2 * torch.finfo(DTYPES[dtype]).eps
            torch.testing.assert_close(one, other, rtol=0, atol=most)


@pytest.mark.parametrize("case, dtype, layout", [cell for cell in CELLS if cell.values[0].unit == "phasor"])
def test_a_peer_does_the_same(case, dtype, layout):
    found = returned(case, dtype, layout)
    theirs, ours = (found[name][:2] for name in (case.measured, "phasor"))
    for one, other in zip(theirs, ours, strict=True):  # of q and k: a weight's gradient is a sum over all tokens
        torch.testing.assert_close(one, other.reshape(one.shape), rtol=0, atol=8 * ROUNDINGS[dtype])


@pytest.mark.parametrize("name", ["llama-prefill", "llama-generate"])
def test_a_patched_llama_gives_what_the_other_does(name):
    found = returned(named([name])[0], "float32", "halves")
    assert all(torch.allclose(a, b, atol=0.02) for a, b in zip(found["patched"], found["unpatched"], strict=True))


def of_law(name: str):
    return made(named(["64 tokens"])[0], "bfloat16", "halves")[name]


@pytest.mark.parametrize("way", ["positions, out", "tables, out", "rounded tables, out", "tables, in place"])
def test_outputs_that_exist_are_what_is_written(way):
    call = of_law(way)
    assert [x.data_ptr() for x in call()] == [x.data_ptr() for x in call()]


@pytest.mark.parametrize("way", ["positions", "positions, out"])
def test_decoding_goes_on(way):
    """What is kept from one step for the same position would be measured as if it were no work."""
    call = of_law(way)
    assert all(not torch.equal(a, b) for a, b in pairwise(call()[0].clone() for _ in range(5)))


def test_the_law_has_every_width_dtype_and_layout_of_pairs():
    assert {case.shape[-1] for case in LAW} == {64, 80, 96, 128}
    assert all(case.dtypes == tuple(DTYPES) and len(case.layouts) == 3 for case in LAW)


@pytest.mark.parametrize(
    "name, way, dtype, layout, bound",
    [
        ("64 tokens", "tables", "float32", "permuted", 1.25),
        ("64 tokens", "packed, in place", "float32", "halves", 1.1),
        ("64 tokens", "flat heads", "float16", "halves", 1.5),
        ("64 tokens", "tables, in place", "float16", "interleaved", 1.3),
        ("64 x 1", "positions", "bfloat16", "halves", 1.4),
        ("width 80", "tables", "bfloat16", "halves", 1.6),
        ("32 of 80", "tables", "float16", "permuted", 2.0),
        ("one token", "cache", "float32", "halves", 1.5),
    ],
)
def test_goals_of_the_law(name, way, dtype, layout, bound):
    assert named([name])[0].goal(way, dtype, layout).bound == bound
