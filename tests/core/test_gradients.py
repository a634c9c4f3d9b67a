"""Derivatives and function transforms; that a gradient is the transposed rotation: `test_algebra`."""

import pytest
import torch
from torch.autograd import forward_ad

from phasor import RotarySpec, apply_rotary, apply_rotary_qk, rotate
from phasor.rotary.matrix import rotation_matrix

from .conftest import anywhere, assert_within, at, without_native

F64 = torch.float64


@pytest.fixture(params=[None, 1, 2**40], ids=["native", "in blocks", "at once"])
def sizes(request, monkeypatch):
    """The native kernel, and both ways of the eager one: its own function in blocks of tokens, the plain expression."""
    if request.param is not None:
        without_native(monkeypatch)
        monkeypatch.setattr("phasor.rotary.kernels.eager.BLOCK", request.param)


@pytest.fixture(params=["one launch", "two launches"])
def launches(request, monkeypatch):
    """Few elements of q and k are turned together, many apart: both ways must behave alike."""
    monkeypatch.setattr("phasor.rotary.kernels.eager.FEW", 2**40 if request.param == "one launch" else 0)


@pytest.mark.usefixtures("launches", "sizes")
def test_writing_to_one_output_leaves_the_other_alone(few):
    """An in-place scaling of the rotated keys is allowed, and does not spoil what autograd keeps of the queries."""
    rotation = at(few, anywhere(few, 0, 5000), torch.float32)
    q, k = (torch.randn(1, h, 7, few.head_dim).requires_grad_() for h in (4, 2))
    a, b = apply_rotary_qk(q, k, rotation)
    loss = a.square().sum()
    kept = a.detach().clone()
    b.mul_(2)
    (loss + b.sum()).backward()
    assert torch.equal(a, kept)
    assert_within(q.grad, 2 * apply_rotary(kept, rotation.transpose()), 4)
    assert_within(k.grad, 2 * apply_rotary(torch.ones_like(k), rotation.transpose()), 4)


@pytest.mark.parametrize("part", ["cos", "sin"])
def test_gradients_reach_the_tables(few, part):
    """cos or sin alone may be learned: whichever it is, its gradient arrives."""
    rotation = at(few, anywhere(few, 0, 5000, 2))
    x = torch.randn(1, 2, few.head_dim, dtype=F64, requires_grad=True)
    table = getattr(rotation, part).clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, t: apply_rotary(x, rotation.replace(**{part: t})), (x, table))


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16])
def test_nothing_of_x_is_saved(few, dtype):
    """Autograd keeps the tables only: nothing with the storage of x, and nothing of its size."""
    x = torch.randn(3, 4, 7, few.head_dim).to(dtype).requires_grad_()
    rotation = at(few, anywhere(few, 0, 5000), dtype)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = apply_rotary(x, rotation)
        apply_rotary_qk(x, x, rotation)
    tables = {t.untyped_storage().data_ptr() for t in (rotation.cos, rotation.sin)}
    assert saved
    assert all(t.untyped_storage().data_ptr() in tables for t in saved)
    assert x.untyped_storage().data_ptr() not in tables
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.usefixtures("sizes")
def test_functional_transforms(few):
    """vmap, grad, jvp, jacrev and hessian of torch.func, against the plain call and the dense matrix."""
    rotation = at(few, anywhere(few, 0, 5000, 3))
    x, v = torch.randn(2, 2, 3, few.head_dim, dtype=F64)

    def rotated(x):
        return apply_rotary(x, rotation)

    batch = torch.stack((x, v))
    assert torch.equal(torch.func.vmap(rotated)(batch), torch.stack((rotated(x), rotated(v))))
    assert torch.equal(
        torch.func.vmap(rotated, in_dims=3, out_dims=3)(batch.movedim(0, 3)).movedim(3, 0), rotated(batch)
    )

    value, tangent = torch.func.jvp(rotated, (x,), (v,))
    assert torch.equal(value, rotated(x))
    assert_within(tangent, rotated(v), 4)
    with forward_ad.dual_level():
        dual = rotated(forward_ad.make_dual(x, v))
        assert_within(forward_ad.unpack_dual(dual).tangent, rotated(v), 4)
        tracked = rotated(forward_ad.make_dual(x.clone().requires_grad_(), v))  # forward over reverse
        assert_within(forward_ad.unpack_dual(tracked).tangent, rotated(v), 4)

    gradient = torch.func.grad(lambda x: (rotated(x) * v).sum())(x)
    assert_within(gradient, apply_rotary(v, rotation.transpose()), 4)
    per_sample = torch.func.vmap(torch.func.grad(lambda x: (rotated(x) * v).sum()))(batch)
    assert_within(per_sample[1], gradient, 4)

    dense = rotation_matrix(rotation)
    jacobian = torch.func.jacrev(lambda x: rotated(x.view(1, 1, -1).expand(1, 3, -1))[0])(x[0, 0])
    assert_within(jacobian, dense, 4)
    assert_within(torch.func.jacfwd(lambda x: rotated(x.view(1, 1, -1).expand(1, 3, -1))[0])(x[0, 0]), dense, 4)

    def energy(x):
        return 0.5 * rotated(x.view(1, 1, -1).expand(1, 3, -1)).square().sum()

    assert_within(torch.func.hessian(energy)(x[0, 0]), (dense.mT @ dense).sum(0), 16)


def test_gradients_reach_real_positions(monkeypatch):
    """At sizes at which other kernels work in blocks, which keep tables as constants."""
    spec = RotarySpec(head_dim=64, coordinates="real")
    q, positions = torch.randn(1, 8, 600, 64), torch.rand(600, dtype=F64, requires_grad=True)
    q = q.requires_grad_()

    def gradient(kernel):
        return torch.autograd.grad(rotate(q, None, positions, spec, kernel=kernel)[0].sum(), positions)[0]

    expected = gradient("reference")
    assert torch.equal(gradient("auto"), expected)
    without_native(monkeypatch)
    assert torch.equal(gradient("auto"), expected)
