"""RMSNorm in the Triton kernel: what the plain expression gives, but for the order in which squares are added."""

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_qk_norm_rotary

from .conftest import DEVICE, INTERPRETED

pytestmark = pytest.mark.usefixtures("few_programs")

LAYOUTS = {
    "halves": {},
    "interleaved": {"interleaved": True},
    "partial": {"rotary_dim": 32},
    "trailing": {"rotary_dim": 16, "trailing": True, "interleaved": True},
    "blocks": {"blocks": 2},
    "permuted": {"interleaved": True, "permuted": True},
}


def gradients(kernel, dtype, settings, inputs, ups, rotation):
    """Of q, k and both weights."""
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    results = apply_qk_norm_rotary(*leaves[:2], rotation, *leaves[2:], eps=1e-3, kernel=kernel, **settings)
    return torch.autograd.grad(results, leaves, [up.to(dtype) for up in ups])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (INTERPRETED and n != "partial")) for n in LAYOUTS]
)
def test_gradients_are_those_of_the_plain_expression_in_float64(name):
    """Rounded once: in float32 all to 1e-6 of the largest, in half precision to half a step of it."""
    spec = RotarySpec(head_dim=80 if name == "partial" else 64, **LAYOUTS[name])
    positions = torch.arange(5, device=DEVICE)
    for dtype, step in ((torch.float32, 1e-6), (torch.float16, 2.0**-11)):
        shapes = [(2, 5, 3, spec.head_dim), (2, 5, 9, spec.head_dim)]
        q, k, *ups = (torch.randn(s, device=DEVICE).to(dtype).transpose(1, 2) for s in shapes * 2)
        inputs = [q, k, *torch.randn(2, spec.head_dim, device=DEVICE).to(dtype)]
        given = dtype, {"unit_offset": name == "partial"}, [x.detach() for x in inputs], ups
        got = gradients("triton", *given, Rotation.at(spec, positions))
        exact = torch.float64, *given[1:], Rotation.at(spec, positions, dtype=torch.float64)
        for a, b in zip(got, gradients("reference", *exact), strict=True):
            assert a.dtype == dtype and (a.double() - b).abs().max() <= step * b.abs().max()


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")  # numpy, which the interpreter runs on
def test_an_epsilon_of_zero_leaves_numbers():
    """Rows of a tile that hold nothing have no root mean square, and must not reach the sums of the weights."""
    rotation = Rotation.at(RotarySpec(head_dim=8), torch.arange(5, device=DEVICE))
    q, up = torch.randn(2, 1, 3, 5, 8, device=DEVICE)
    weight = torch.randn(8, device=DEVICE)
    found = []
    for kernel in ("triton", "reference"):
        leaf = weight.clone().requires_grad_()
        y, _ = apply_qk_norm_rotary(q, None, rotation, leaf, None, eps=0.0, kernel=kernel)
        found += torch.autograd.grad(y, leaf, up)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


def launches_of(monkeypatch):
    """The launches there and back, counted: the long way, since what was launched before takes a short one."""
    from phasor.rotary.kernels.triton import norm_backward, plans, rotate

    plans.PLANS.clear()
    seen = []
    for module, name in ((rotate, "rotate"), (norm_backward, "rotate_back")):
        own = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, own=own, name=name: (seen.append(name), own(*given))[1])
    return seen


@pytest.mark.parametrize(
    "wanted",
    [(0, 3), *(pytest.param(w, marks=[pytest.mark.slow] * INTERPRETED) for w in ((0, 1, 2, 3), (0,), (1,), (2,)))],
    ids=str,
)
def test_only_what_is_wanted_comes_back(wanted, monkeypatch):
    """In one launch, the same at every call; and twice, through the plain expression."""
    seen = launches_of(monkeypatch)
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(3, device=DEVICE))
    inputs = [torch.randn(*shape, device=DEVICE) for shape in ((2, 3, 16), (1, 3, 16), (16,), (16,))]

    def back(kernel, twice=False):
        leaves = [x.clone().requires_grad_(i in wanted) for i, x in enumerate(inputs)]
        y, z = apply_qk_norm_rotary(*leaves[:2], rotation, *leaves[2:], kernel=kernel)
        of = [leaves[i] for i in wanted]
        found = torch.autograd.grad((y.sin().sum() + z.sin().sum()), of, create_graph=twice)
        return torch.autograd.grad(sum(g.square().sum() for g in found), of) if twice else found

    first = back("triton")
    assert seen == ["rotate", "rotate_back"]
    assert all(torch.equal(a, b) for a, b in zip(first, back("triton"), strict=True))
    for twice in (False, True):
        for a, b in zip(back("triton", twice), back("reference", twice), strict=True):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max()
