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


ROUNDINGS = ["once", "between", "before_weight"]


def turns_about(name, rounding):
    """In the interpreter every layout has one rounding, and every rounding two layouts; the others are slow."""
    here = list(LAYOUTS).index(name) % 3 == ROUNDINGS.index(rounding)
    return pytest.param(name, rounding, marks=[] if here or not INTERPRETED else pytest.mark.slow)


@pytest.mark.parametrize("name, rounding", [turns_about(n, r) for n in LAYOUTS for r in ROUNDINGS])
def test_it_is_the_plain_expression(name, rounding):
    """In float32 to 1e-6 of the largest value; in float16 to a step of what is rounded between, and of the result.

    The bits too, but where the order of a sum tips a rounding: of other roundings at most 95 of 100 values have them.
    """
    spec = RotarySpec(head_dim=80 if name == "partial" else 64, **LAYOUTS[name])
    for dtype, steps in ((torch.float32, 1e-6), (torch.float16, 2 * 2.0**-10)):
        q, k = (torch.randn(2, 5, h, spec.head_dim, device=DEVICE).to(dtype).transpose(1, 2) for h in (3, 2))
        weights = torch.randn(2, spec.head_dim, device=DEVICE).to(dtype)
        rotation = Rotation.at(spec, torch.arange(5, device=DEVICE))
        given = (q, k, rotation, *weights)
        settings = {"rounding": rounding, "unit_offset": rounding == "between", "eps": 1e-3}
        got, expected = (apply_qk_norm_rotary(*given, **settings, kernel=n) for n in ("triton", "reference"))
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype and a.is_contiguous()
            assert (a.float() - b.float()).abs().max() <= steps * b.float().abs().max()
            assert dtype == torch.float32 or (a == b).float().mean() >= 0.98


def test_without_weights_and_without_keys():
    rotation = Rotation.at(RotarySpec(head_dim=64), torch.arange(5, device=DEVICE))
    q = torch.randn(1, 3, 5, 64, device=DEVICE)
    got = apply_qk_norm_rotary(q, None, rotation, None, None, kernel="triton")[0]
    torch.testing.assert_close(got.square().mean(-1), torch.ones(1, 3, 5, device=DEVICE), rtol=0, atol=1e-5)


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
    """The launches there and back, counted."""
    from phasor.rotary.kernels.triton import norm_backward, rotate

    seen = []
    for module, name in ((rotate, "rotate"), (norm_backward, "rotate_back")):
        own = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, own=own, name=name: (seen.append(name), own(*given))[1])
    return seen


@pytest.mark.parametrize(
    "wanted",
    [(0, 3), (0, 1, 2, 3), *(pytest.param(w, marks=[pytest.mark.slow] * INTERPRETED) for w in ((0,), (1,), (2,)))],
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


def test_batched_gradients_have_the_rules_of_the_plain_expression():
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(3, device=DEVICE))
    q, ups = torch.randn(2, 3, 16, device=DEVICE, requires_grad=True), torch.randn(4, 2, 3, 16, device=DEVICE)
    y, _ = apply_qk_norm_rotary(q, None, rotation, None, None, kernel="triton")
    (many,) = torch.autograd.grad(y, q, ups, is_grads_batched=True, retain_graph=True)
    for up, of_up in zip(ups, many, strict=True):
        torch.testing.assert_close(torch.autograd.grad(y, q, up, retain_graph=True)[0], of_up)


@pytest.mark.parametrize("settings", [{"after": True}, {"across_heads": True}], ids=str)
def test_what_is_done_in_steps(settings):
    """Norms after the rotation and across heads."""
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5, device=DEVICE))
    q = torch.randn(1, 3, 5, 16, device=DEVICE)
    weight = torch.randn(48 if settings.get("across_heads") else 16, device=DEVICE)

    def back(kernel):
        leaves = [q.clone().requires_grad_(), weight.clone().requires_grad_()]
        y, _ = apply_qk_norm_rotary(leaves[0], None, rotation, leaves[1], None, kernel=kernel, **settings)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), leaves)]

    for a, b in zip(back("triton"), back("reference"), strict=True):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()


def test_one_launch(monkeypatch):
    from phasor.rotary.kernels.triton import rotate

    launches, own = [], rotate.rotate
    monkeypatch.setattr(rotate, "rotate", lambda *given: (launches.append(1), own(*given))[1])
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5, device=DEVICE))
    q = torch.randn(1, 3, 5, 16, device=DEVICE)
    apply_qk_norm_rotary(q, q, rotation, None, None, kernel="triton")
    assert launches == [1] and (INTERPRETED or q.is_cuda)
