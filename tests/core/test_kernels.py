"""The kernels against the reference: the same bits, whatever the block, dtype, strides, format and layout."""

import dataclasses

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary, apply_rotary_qk
from phasor.rotary.kernels import eager, reference

from .conftest import FACTORS, SECOND, SPECS, anywhere, at, without_native
from .test_apply import STRIDED

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# one token at a time, blocks that do not divide the length, and everything at once; or the native kernel
BLOCKS = [1, 100, 600, 2**18, None]


@pytest.fixture(params=BLOCKS)
def block(request, monkeypatch):
    if request.param is not None:
        without_native(monkeypatch)
        monkeypatch.setattr(eager, "BLOCK", request.param)


def by_reference(x, rotation, tensor_format):
    heads = -3 if tensor_format == "bhsd" else -2

    def lined_up(cos, sin):
        if rotation.per_head:
            return (cos, sin) if heads == -3 else (cos.transpose(-3, -2), sin.transpose(-3, -2))
        return cos.unsqueeze(heads), sin.unsqueeze(heads)

    second = None if rotation.second is None else lined_up(*rotation.second)
    cos, sin = lined_up(rotation.cos, rotation.sin)
    return reference.rotated(x, cos, sin, rotation.layout, rotation.promoted, second)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("tensor_format", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("place", ["full", "first", "last"])
def test_same_bits(place, layout, dtype, tensor_format):
    spec = SPECS[f"yarn-one-{place}-{layout}"]
    shape = (2, 3, 7) if tensor_format == "bhsd" else (2, 7, 3)
    x = torch.randn(*shape, spec.head_dim).to(dtype)
    variants = [spec] + [spec.replace(angles="float32", tables=t) for t in ("activation", "float32", "rounded")]
    for variant in variants:
        for batch in ((), (2,)):
            rotation = at(variant, anywhere(variant, 0, 5000, 7, *batch), dtype)
            got = apply_rotary(x, rotation, tensor_format=tensor_format)
            assert got.dtype == dtype
            assert torch.equal(got, by_reference(x, rotation, tensor_format))


LAYOUTS = {n: FACTORS[n] for n in FACTORS if n.startswith(("blocks", "permuted", "reverse"))} | SECOND


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("tensor_format", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LAYOUTS)
def test_same_bits_for_layouts_of_few_models(name, dtype, tensor_format):
    spec = LAYOUTS[name]
    shape = (2, 3, 7) if tensor_format == "bhsd" else (2, 7, 3)
    x = torch.randn(*shape, spec.head_dim).to(dtype)
    tables = ("activation", "promoted", "float64")
    for variant in [spec] + [spec.replace(angles="float32", tables=t) for t in tables]:
        rotation = at(variant, anywhere(variant, 0, 5000), dtype)
        y = x.clone().requires_grad_()
        got, expected = apply_rotary(x, rotation, tensor_format=tensor_format), by_reference(y, rotation, tensor_format)
        assert got.dtype == (torch.promote_types(dtype, torch.float32) if rotation.promoted else dtype)
        assert got.is_contiguous()
        assert torch.equal(got, expected)
        z, g = x.clone().requires_grad_(), torch.randn_like(expected)
        assert torch.equal(apply_rotary(z, rotation, tensor_format=tensor_format), expected)
        (ours,) = torch.autograd.grad(apply_rotary(z, rotation, tensor_format=tensor_format), z, g)
        (theirs,) = torch.autograd.grad(expected, y, g)
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=16 * torch.finfo(dtype).eps)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
def test_same_bits_for_any_strides(few, make):
    x, rotation = make(few.head_dim), at(few, anywhere(few, 0, 5000), torch.float32)
    before = x.clone()
    got = apply_rotary(x, rotation)
    assert torch.equal(got, by_reference(x, rotation, "bhsd"))
    assert torch.equal(x, before)
    assert not torch._C._overlaps(got, x)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("tensor_format", ["bhsd", "bshd"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_same_bits_per_head(batch, tensor_format):
    rotation = Rotation.from_frequencies(torch.randn(2, *batch, 7), torch.randn(3, 2, 4), head_dim=10)
    x = torch.randn(2, 3, 7, 10) if tensor_format == "bhsd" else torch.randn(2, 7, 3, 10)
    got = apply_rotary(x, rotation, tensor_format=tensor_format)
    assert torch.equal(got, by_reference(x, rotation, tensor_format))


@pytest.mark.usefixtures("block")
def test_same_gradient(few):
    rotation = at(few, anywhere(few, 0, 5000), torch.float64)
    x = torch.randn(2, 3, 7, few.head_dim, dtype=torch.float64, requires_grad=True)
    g = torch.randn_like(x)
    (got,) = torch.autograd.grad(apply_rotary(x, rotation), x, g)
    (expected,) = torch.autograd.grad(by_reference(x, rotation, "bhsd"), x, g)
    torch.testing.assert_close(got, expected, rtol=0, atol=8 * 2**-52)
    rotation, x = at(few, anywhere(few, 0, 5000, 2), torch.float64), x[:1, :1, :2].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: apply_rotary(x, rotation), x)


@pytest.mark.usefixtures("block")
def test_no_graph_without_gradients(few):
    x = torch.randn(2, 3, 7, few.head_dim, requires_grad=True)
    rotation = at(few, anywhere(few, 0, 5000), torch.float32)
    with torch.no_grad():
        assert not apply_rotary(x, rotation).requires_grad
    with torch.inference_mode():
        assert torch.equal(apply_rotary(x, rotation), apply_rotary(x.detach(), rotation))
    assert apply_rotary(x, rotation).requires_grad


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_size_that_needs_blocks(dtype, native, monkeypatch):
    """No constant changed: a million elements of q, a prime number of tokens, and k small enough for one block."""
    spec = SPECS["yarn-one-first-interleaved"].replace(head_dim=32)
    q, k = torch.randn(2, 16, 1021, 32).to(dtype), torch.randn(2, 1, 1021, 32).to(dtype)
    assert q.numel() > eager.BLOCK > k.numel()
    if not native:
        without_native(monkeypatch)
    rotation = at(spec, anywhere(spec, 0, 2**31, 1021), dtype)
    a, b = apply_rotary_qk(q, k, rotation)
    assert torch.equal(a, by_reference(q, rotation, "bhsd"))
    assert torch.equal(b, by_reference(k, rotation, "bhsd"))


@pytest.mark.parametrize("few_elements", [0, 2**40])
@pytest.mark.parametrize("tensor_format", ["bhsd", "bshd"])
@pytest.mark.parametrize("batch", [(), (2,), (2, 2)])
def test_one_launch_or_two(few, few_elements, tensor_format, batch, monkeypatch):
    without_native(monkeypatch)
    monkeypatch.setattr("phasor.rotary.kernels.eager.FEW", few_elements)
    heads = [(4, 7), (2, 7)] if tensor_format == "bhsd" else [(7, 4), (7, 2)]
    q, k = (torch.randn(*batch, *h, few.head_dim) for h in heads)
    rotation = at(few, anywhere(few, 0, 5000), torch.float32)
    a, b = apply_rotary_qk(q, k, rotation, tensor_format=tensor_format)
    assert torch.equal(a, by_reference(q, rotation, tensor_format))
    assert torch.equal(b, by_reference(k, rotation, tensor_format))


def test_heads_of_other_widths(few):
    """q and k of different head_dim are turned apart, each in its own first or last channels."""
    rotation = at(few, anywhere(few, 0, 5000), torch.float32)
    wider = rotation.replace(layout=dataclasses.replace(few.layout, head_dim=few.head_dim + 10))
    q, k = torch.randn(2, 4, 7, few.head_dim), torch.randn(2, 4, 7, few.head_dim + 10)
    a, b = apply_rotary_qk(q, k, rotation, k_rotation=wider)
    assert torch.equal(a, by_reference(q, rotation, "bhsd"))
    assert torch.equal(b, by_reference(k, wider, "bhsd"))


@pytest.mark.parametrize("shape", [(1, 1, 7, 12), (1, 7, 12), (7, 1, 7, 12)])
def test_keys_of_another_batch_than_the_queries(shape):
    """What all rows have in common comes once, or without the axis; each is rotated as if it were alone."""
    spec = RotarySpec(head_dim=12)
    q, k, rotation = torch.randn(2, 3, 7, 12), torch.randn(shape), Rotation.at(spec, torch.arange(7))
    for given in ((q, k), (k, q)):
        together = apply_rotary_qk(*given, rotation, kernel="eager")
        assert all(
            torch.equal(y, apply_rotary(x, rotation, kernel="reference")) for x, y in zip(given, together, strict=True)
        )
