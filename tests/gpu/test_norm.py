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


@pytest.mark.parametrize("rounding", ["once", "between", "before_weight"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_it_is_the_plain_expression(name, rounding):
    """In float32 to 1e-6 of the largest value; in float16 to a step of what is rounded between, and of the result."""
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


def test_without_weights_and_without_keys():
    rotation = Rotation.at(RotarySpec(head_dim=64), torch.arange(5, device=DEVICE))
    q = torch.randn(1, 3, 5, 64, device=DEVICE)
    got = apply_qk_norm_rotary(q, None, rotation, None, None, kernel="triton")[0]
    torch.testing.assert_close(got.square().mean(-1), torch.ones(1, 3, 5, device=DEVICE), rtol=0, atol=1e-5)


@pytest.mark.parametrize("settings", [{"after": True}, {"across_heads": True}, {}], ids=str)
def test_what_is_done_in_steps(settings):
    """Gradients, norms after the rotation and across heads."""
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
    from phasor.kernels.gpu import launch

    launches, own = [], launch.turn
    monkeypatch.setattr(launch, "turn", lambda *given: (launches.append(1), own(*given))[1])
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5, device=DEVICE))
    q = torch.randn(1, 3, 5, 16, device=DEVICE)
    apply_qk_norm_rotary(q, q, rotation, None, None, kernel="triton")
    assert launches == [1] and (INTERPRETED or q.is_cuda)
