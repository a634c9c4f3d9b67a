"""RMSNorm and rotation in the C kernel: the bits of the plain expression, its gradients, and the order of its sums."""

import itertools
import platform
import random

import numpy as np
import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_qk_norm_rotary
from phasor.rotary.kernels import ORDERS
from phasor.rotary.kernels.native import kernel as native
from phasor.rotary.kernels.norm import Norm

from .conftest import NATIVE, needs_native
from .test_native import a_case
from .test_norm import ROUNDINGS

# Where torch's own kernels add squares in the order that the C kernel has everywhere.
TORCH_ADDS_ALIKE = platform.machine().lower() in ("x86_64", "amd64")
pytestmark = needs_native


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


def a_norm(rng, q, k, heads):
    """Weights and settings for q and k."""
    across = rng.random() < 0.3
    dtype = rng.choice([torch.float32, q.dtype])
    weights = [None, None]
    if rng.random() < 0.8:
        weights = [torch.randn((x.shape[heads] if across else 1) * x.shape[-1]).to(dtype) for x in (q, k)]
    return weights, {
        "eps": rng.choice([0.0, 1e-6, 0.1]), "unit_offset": rng.random() < 0.5, "across_heads": across,
        "after": rng.random() < 0.3, "rounding": rng.choice(ROUNDINGS),
    }  # fmt: skip


@pytest.mark.skipif(not TORCH_ADDS_ALIKE, reason="on this machine torch adds squares in another order")
@pytest.mark.parametrize("seed", range(4))
def test_the_bits_of_the_plain_expression(seed, instructions):
    """Any layout, strides and dtype, given results and in place; and the C kernel is what did it."""
    rng = random.Random(seed)
    for _ in range(30):
        spec, positions, q, k, tensor_format = a_case(rng)
        if q.shape[-1] < 8:  # there torch adds in another order
            continue
        rotation = Rotation.at(spec, positions, dtype=q.dtype)
        heads = ORDERS[tensor_format].heads
        weights, settings = a_norm(rng, q, k, heads)
        if q.shape[:-3] != k.shape[:-3]:
            k = None
        given = (q, k, rotation, *weights)
        settings["tensor_format"] = tensor_format
        dense = [None if x is None else x.contiguous() for x in (q, k)]  # of others torch adds in another order
        expected = apply_qk_norm_rotary(*dense, *given[2:], kernel="reference", **settings)
        for got in (
            apply_qk_norm_rotary(*given, kernel="native", **settings),
            apply_qk_norm_rotary(*given, **settings),
        ):
            for a, b in zip(got, expected, strict=True):
                assert (a is None and b is None) or (torch.equal(a, b) and a.is_contiguous() and a.dtype == b.dtype)
        norm = Norm(*weights, *(settings[n] for n in ("eps", "unit_offset", "across_heads", "after", "rounding")))
        assert NATIVE.norm_and_rotate(q, k, rotation, tensor_format, False, None, None, norm) is not None
        here = q.clone(memory_format=torch.contiguous_format)
        apply_qk_norm_rotary(here, None, rotation, weights[0], None, out=(here, None), **settings)
        assert torch.equal(here, expected[0])


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_everything(seed, instructions):
    """Against those of the plain expression in float64, from values that float32 holds: 1e-6 of the largest one."""
    rng = random.Random(seed)
    for _ in range(12):
        spec, positions, q, k, tensor_format = a_case(rng)
        if q.shape[:-3] != k.shape[:-3] or q.dtype != torch.float32:
            continue
        rotation = Rotation.at(spec, positions)
        weights, settings = a_norm(rng, q, k, ORDERS[tensor_format].heads)
        settings |= {"tensor_format": tensor_format, "eps": 1e-3}
        inputs = [x.detach().clone().as_strided(x.shape, x.stride()) if 0 in x.stride() else x for x in (q, k)]
        inputs = [x for x in (*inputs, *weights) if x is not None]
        ups = [torch.randn_like(x).mT.contiguous().mT for x in (q, k)]

        def back(kernel, dtype, settings=settings, rotation=rotation, inputs=inputs, ups=ups):
            leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
            given = leaves if len(leaves) == 4 else [*leaves, None, None]
            turning = rotation.replace(cos=rotation.cos.to(dtype), sin=rotation.sin.to(dtype))
            y = apply_qk_norm_rotary(*given[:2], turning, *given[2:], kernel=kernel, **settings)
            return torch.autograd.grad(y, leaves, [up.to(dtype) for up in ups])

        for got, exact in zip(back("auto", torch.float32), back("reference", torch.float64), strict=True):
            assert got.dtype == torch.float32
            assert (got - exact).abs().max() <= 1e-6 * exact.abs().max()


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


@pytest.mark.parametrize("wanted", [s for s in itertools.product([False, True], repeat=4) if any(s)])
def test_only_the_gradients_that_are_wanted(wanted):
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5))
    inputs = [torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 16), torch.randn(16), torch.randn(16)]
    expected = None
    for kernel in ("reference", "auto"):
        leaves = [x.clone().requires_grad_(w) for x, w in zip(inputs, wanted, strict=True)]
        y, z = apply_qk_norm_rotary(leaves[0], leaves[1], rotation, *leaves[2:], kernel=kernel)
        assert (y.requires_grad, z.requires_grad) == (wanted[0] or wanted[2], wanted[1] or wanted[3])
        sum(t.square().sum() for t in (y, z)).backward()
        got = [x.grad for x in leaves]
        assert [g is not None for g in got] == list(wanted)
        if expected is not None:
            for a, b in zip(got, expected, strict=True):
                assert a is None or torch.allclose(a, b, rtol=1e-5, atol=1e-6)
        expected = got


def test_gradients_can_be_differentiated_again():
    rotation = Rotation.at(RotarySpec(head_dim=4), torch.arange(2))
    inputs = [torch.randn(1, 1, 2, 4).requires_grad_(), torch.randn(4).requires_grad_()]

    def second(kernel):
        y, _ = apply_qk_norm_rotary(inputs[0], None, rotation, inputs[1], None, kernel=kernel)
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)

    for a, b in zip(second("auto"), second("reference"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_batched_gradients():
    rotation = Rotation.at(RotarySpec(head_dim=4), torch.arange(2))
    q, weight = torch.randn(1, 1, 2, 4).requires_grad_(), torch.randn(4).requires_grad_()
    y, _ = apply_qk_norm_rotary(q, None, rotation, weight, None)
    ups = torch.randn(3, *y.shape)
    together = torch.autograd.grad(y, (q, weight), ups, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        for a, b in zip(together, torch.autograd.grad(y, (q, weight), ups[i], retain_graph=True), strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize("dtype", native.DTYPES)
def test_not_a_number_stays_none(dtype, instructions):
    rotation = Rotation.at(RotarySpec(head_dim=64), torch.arange(4))
    q, weight = torch.randn(1, 2, 4, 64).to(dtype), torch.randn(64)
    q[0, 1, 2, 3], q[0, 0, 1, 5], q[0, 0, 0, 9] = float("nan"), float("inf"), torch.finfo(dtype).max
    weight[7] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    for rounding in ROUNDINGS:
        got, expected = (
            apply_qk_norm_rotary(q, None, rotation, weight, None, rounding=rounding, kernel=name)[0]
            for name in ("native", "reference")
        )
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
