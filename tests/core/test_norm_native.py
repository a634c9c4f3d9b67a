"""RMSNorm and rotation in the C kernel: the bits of the plain expression, its gradients, and the order of its sums."""

import numpy as np
import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_qk_norm_rotary

from .conftest import needs_native

# Where torch's own kernels add squares in the order that the C kernel has everywhere.
pytestmark = needs_native
SPEC = RotarySpec(head_dim=48, rotary_dim=32, interleaved=True, permuted=True)


def added(x):
    """Squares added in 32 running sums, which are summed after 16, 256 and 4096 blocks; from the definition."""
    square = x.astype(np.float32) ** 2
    n, total = len(square), np.float32(0)
    levels = [np.zeros(32, np.float32) for _ in range(4)]
    for i in range(n // 32):
        levels[0] = levels[0] + square[32 * i : 32 * i + 32]
        for level in range(1, 4):
            if (i + 1) % 16**level:
                break
            levels[level], levels[level - 1] = levels[level] + levels[level - 1], np.zeros(32, np.float32)
    sums = levels[0] + levels[1] + levels[2] + levels[3]
    for j in range(n // 32 * 32, n // 8 * 8, 8):
        sums[:8] += square[j : j + 8]
    for j in range(n // 8 * 8, n):
        total = total + square[j]
    for part in sums[:8] + sums[8:16] + sums[16:24] + sums[24:]:
        total = total + part
    return total


@pytest.mark.parametrize("width", [2, 8, 40, 64, 100, 128, 130, 512, 1024, 5120, 8192])
def test_the_order_of_the_sum(width, instructions):
    """A rotation by nothing leaves what the root of that sum says, bit for bit."""
    x = torch.randn(1, 1, 3, width) * torch.randn(1, 1, 3, 1).exp()
    still = Rotation(cos=torch.ones(3, 1), sin=torch.zeros(3, 1), layout=Layout(head_dim=width, rotary_dim=2))
    got = apply_qk_norm_rotary(x, None, still, None, None, eps=1e-5, kernel="native")[0]
    for row, y in zip(x[0, 0].numpy(), got[0, 0].numpy(), strict=True):
        root = np.float32(1) / np.sqrt(added(row) / np.float32(width) + np.float32(1e-5))
        assert np.array_equal(y, row * root)


def test_the_gradient_of_a_weight_over_many_tokens():
    """20,000 heads add to it, the same bits on any number of threads."""
    q, up = torch.randn(2, 1, 10_000, 64), torch.randn(2, 1, 10_000, 64)
    weight, rotation = torch.randn(64), Rotation.at(RotarySpec(head_dim=64), torch.arange(10_000))

    def back(kernel, dtype=torch.float32):
        w = weight.to(dtype).requires_grad_()
        turning = rotation.replace(cos=rotation.cos.to(dtype), sin=rotation.sin.to(dtype))
        y = apply_qk_norm_rotary(q.to(dtype), None, turning, w, None, kernel=kernel)[0]
        return torch.autograd.grad(y, w, up.to(dtype))[0]

    exact, before, found = back("reference", torch.float64), torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(back("native"))
        torch.set_num_threads(before)
    assert torch.equal(*found)
    assert (found[0] - exact).abs().max() <= 1e-6 * exact.abs().max()


def test_what_it_leaves_to_others():
    q, rotation = torch.randn(1, 1, 2, 9000), Rotation(
        cos=torch.ones(2, 1), sin=torch.zeros(2, 1), layout=Layout(head_dim=9000, rotary_dim=2)
    )  # fmt: skip
    with pytest.raises(ValueError, match="means of at most 8192 channels, got 9000"):
        apply_qk_norm_rotary(q, None, rotation, None, None, kernel="native")
    assert apply_qk_norm_rotary(q, None, rotation, None, None)[0].shape == q.shape
    rotation = Rotation.at(RotarySpec(head_dim=4), torch.arange(2))
    with pytest.raises(ValueError, match="these weights are float64"):
        apply_qk_norm_rotary(torch.randn(1, 1, 2, 4), None, rotation, torch.ones(4).double(), None, kernel="native")
