"""Axes: which coordinate turns which pair."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.positions import text
from phasor.rotary.axes import Axial, InterleavedSections, Mixed, OneAxis, Sections, mixed_frequencies

from .conftest import SPECS, at

F64 = torch.float64

# Written down by hand from the definition of each scheme in conftest, not asked from the code.
OWNERS = {
    "axial": [0, 0, 0, 0, 1, 1, 1, 1],
    "sections": [0, 0, 0, 0, 1, 2, 2, 2],
    "interleaved_sections": [0, 1, 2, 0, 1, 2, 0, 1],
}


@pytest.mark.parametrize("scaling", ["plain", "yarn"])
@pytest.mark.parametrize("axes", OWNERS)
@pytest.mark.parametrize("angles", ["exact", "float32"])
def test_each_axis_turns_only_its_own_pairs(axes, scaling, angles):
    spec = SPECS[f"{scaling}-{axes}-full-halves"].replace(angles=angles)
    still = at(spec, torch.zeros(spec.axes.count, 1, dtype=torch.int64))
    for axis in range(spec.axes.count):
        moved = torch.zeros(spec.axes.count, 1, dtype=torch.int64)
        moved[axis] = 3
        turned = at(spec, moved).sin[0] != still.sin[0]
        assert turned.tolist() == [owner == axis for owner in OWNERS[axes]]


@pytest.mark.parametrize("name", ["sections", "interleaved_sections"])
def test_equal_axes_are_one_axis(name):
    """Text in M-RoPE is plain rotary, to the bit."""
    spec = SPECS[f"plain-{name}-full-halves"]
    positions = torch.randint(-(2**31), 2**31, (2, 9))
    for angles in ("exact", "float32"):
        ours = at(spec.replace(angles=angles), text(positions, axes=3))
        one = at(spec.replace(axes=OneAxis(), angles=angles), positions)
        assert torch.equal(ours.cos, one.cos)
        assert torch.equal(ours.sin, one.sin)


def test_axial_with_unequal_sizes():
    """Video, 2 + 3 + 3 pairs: each axis runs over its own ladder b^(-j/n)."""
    spec = RotarySpec(head_dim=16, axes=Axial((2, 3, 3)))
    expected = [10_000.0 ** (-j / n) for n in (2, 3, 3) for j in range(n)]
    torch.testing.assert_close(spec.inv_freq(), torch.tensor(expected, dtype=F64), rtol=2e-16 * 10, atol=0)
    float32 = spec.replace(angles="float32").inv_freq()
    torch.testing.assert_close(float32, torch.tensor(expected, dtype=F64), rtol=2e-6, atol=0)
    assert spec.axes.axis_of_pair(8) == (0, 0, 1, 1, 1, 2, 2, 2)


@pytest.mark.parametrize(
    "axes, owners",
    [
        (InterleavedSections((24, 20, 20)), (0, 1, 2) * 20 + (0,) * 4),  # Qwen3-VL
        (Sections((16, 24, 24)), (0,) * 16 + (1,) * 24 + (2,) * 24),  # Qwen2-VL
        (Sections((0, 4, 4)), (1,) * 4 + (2,) * 4),
    ],
)
def test_published_sections(axes, owners):
    assert axes.axis_of_pair(len(owners)) == owners


def test_axis_of_pair_of_mixed_is_its_largest_share():
    assert Mixed(((1.0, -0.2), (0.5, 0.9))).axis_of_pair(2) == (0, 1)
    assert Mixed(((0.1, 0.2), (-0.5, 0.1))).axis_of_pair(2) == (1, 0)
    assert OneAxis().axis_of_pair(3) == (0, 0, 0)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(lambda s: sum(s) > 0))
def test_interleaved_sections_against_a_loop(sections):
    """Qwen3-VL's rule for any number of axes: time everywhere, then axis a overwrites a, a + n, … < n s_a."""
    pairs, n = sum(sections), len(sections)
    owner = [0] * pairs
    for axis in range(1, n):
        for pair in range(axis, min(n * sections[axis], pairs), n):
            owner[pair] = axis
    axes = InterleavedSections(tuple(sections))
    if [owner.count(axis) for axis in range(n)] == sections:
        assert axes.axis_of_pair(pairs) == tuple(owner)
    else:  # the rule would give some axis fewer pairs than its section says
        with pytest.raises(ValueError, match="cannot take turns"):
            axes.axis_of_pair(pairs)


# --- learned frequencies --------------------------------------------------------------------------------------------


def test_mixed_frequencies_start():
    """RoPE-ViT's init_random_2d_freqs: magnitudes 10^(-4j/d) twice, the second set at a right angle to the first."""
    f = mixed_frequencies(16, heads=3)
    assert f.shape == (3, 2, 8)
    assert f.dtype == torch.float32
    size = torch.tensor([10 ** (-4 * j / 16) for j in range(4)])
    torch.testing.assert_close(f.norm(dim=1), size.repeat(2).expand(3, -1), rtol=4e-7, atol=0)
    first, second = f[..., :4], f[..., 4:]
    dot = (first * second).sum(1) / size**2
    assert dot.abs().max() < 4e-7
    turned = torch.stack((-first[:, 1], first[:, 0]), dim=1)
    torch.testing.assert_close(second, turned, rtol=0, atol=4e-7)
    angle = torch.atan2(first[:, 1], first[:, 0])
    torch.testing.assert_close(angle, angle[:, :1].expand_as(angle), rtol=0, atol=4e-7)
    assert angle[:, 0].unique().numel() == 3


def test_mixed_frequencies_seed_and_base():
    a, b = (mixed_frequencies(8, 2, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(a, b)
    wide = mixed_frequencies(8, 1, base=100.0)
    torch.testing.assert_close(wide.norm(dim=1)[0], torch.tensor([1, 0.1, 1, 0.1]), rtol=4e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_mixed_frequencies_do_not_inherit_the_default_dtype(dtype):
    """float32 as documented; bfloat16 frequencies would carry errors of 4e-3."""
    torch.set_default_dtype(dtype)
    try:
        f = mixed_frequencies(16, heads=2)
    finally:
        torch.set_default_dtype(torch.float32)
    size = torch.tensor([10 ** (-4 * j / 16) for j in range(4)]).repeat(2)
    torch.testing.assert_close(f.norm(dim=1), size.expand(2, -1), rtol=4e-7, atol=0)


def test_learned_frequencies_per_head():
    """[H, A, P]: head h at position (x, y) turns pair p by x f[h,0,p] + y f[h,1,p]; a loop over all of them."""
    f = torch.randn(3, 2, 4, dtype=F64)
    positions = torch.randn(2, 2, 5, dtype=F64)  # two axes, batch 2, fractional
    rotation = Rotation.from_frequencies(positions, f)
    assert rotation.per_head
    assert rotation.cos.shape == (2, 3, 5, 4)
    for b in range(2):
        for h in range(3):
            for s in range(5):
                for p in range(4):
                    angle = float(positions[0, b, s] * f[h, 0, p] + positions[1, b, s] * f[h, 1, p])
                    assert rotation.cos[b, h, s, p].item() == pytest.approx(math.cos(angle), abs=1e-15)
                    assert rotation.sin[b, h, s, p].item() == pytest.approx(math.sin(angle), abs=1e-15)
    assert Rotation.from_frequencies(positions[:, 0], f).cos.shape == (3, 5, 4)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (3, 2, 4)])
def test_gradients_reach_learned_frequencies(shape):
    f = torch.randn(shape, dtype=F64, requires_grad=True)
    positions = torch.randn(*((2,) if len(shape) > 1 else ()), 5, dtype=F64)
    x = torch.randn(1, 3, 5, 8, dtype=F64, requires_grad=True)

    def rotated(x, f):
        return apply_rotary(x, Rotation.from_frequencies(positions, f, interleaved=True))

    assert torch.autograd.gradcheck(rotated, (x, f))
    assert torch.autograd.gradgradcheck(rotated, (x, f))


def test_gradients_reach_learned_angles_and_positions():
    x, f = torch.randn(1, 1, 5, 8, dtype=F64), torch.randn(4, dtype=F64)
    angles, seconds = (torch.randn(*shape, dtype=F64, requires_grad=True) for shape in ((5, 4), (5,)))
    assert torch.autograd.gradcheck(lambda a: apply_rotary(x, Rotation.from_angles(a)), angles)
    assert torch.autograd.gradcheck(lambda t: apply_rotary(x, Rotation.from_frequencies(t, f)), seconds)
