"""Sections 8 to 10 of docs/theory.md: attention factor, longer contexts, several axes."""

import math

import numpy as np
import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.rotary.axes import Axial, InterleavedSections, Mixed, Sections
from phasor.rotary.matrix import generator
from phasor.rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN, YaRNPaper

from .page import close, ladder, printed, turn

RNG = np.random.default_rng(0)


def scaled(scaling, base=10_000.0, head_dim=128, seq_len=None) -> np.ndarray:
    return RotarySpec(head_dim=head_dim, base=base, scaling=scaling).inv_freq(seq_len).numpy()


def test_equation_29_scores_grow_by_the_square():
    """Rotated channels only: the score is quadratic in A on them and free of A on the rest."""
    spec = RotarySpec(head_dim=8, rotary_dim=4, interleaved=True, scaling=YaRN(factor=16.0, original_max_position=4096))
    theta = spec.inv_freq().numpy()
    q, k = RNG.standard_normal((2, 8))
    turned = [
        apply_rotary(
            torch.from_numpy(x).view(1, 1, 1, 8), Rotation.at(spec, torch.tensor([m]), dtype=torch.float64)
        ).flatten()
        for x, m in ((q, 9), (k, 4))
    ]
    a = 0.1 * math.log(16) + 1
    expected = a * a * (turn(q[:4], 9, theta) @ turn(k[:4], 4, theta)) + q[4:] @ k[4:]
    assert close(float(turned[0] @ turned[1]), expected, 100)


def test_equation_30_squeezed_positions():
    """Scaled frequencies at m are the plain ones at m / s."""
    plain = RotarySpec(head_dim=64)
    linear = plain.replace(scaling=Linear(8.0))
    a = Rotation.at(linear, torch.arange(0, 800, 8), dtype=torch.float64)
    b = Rotation.at(plain, torch.arange(100), dtype=torch.float64)
    assert close(a.cos, b.cos)
    assert close(a.sin, b.sin)


def test_equation_31_first_kept_last_divided():
    stretched = []
    for s in (2.0, 4.0, 8.0, 16.0):
        plain, got = ladder(10_000.0, 128), scaled(NTK(s))
        assert got[0] == plain[0]
        assert plain[-1] / got[-1] == pytest.approx(s)
        # the base is the one number that does this on a geometric ladder: read it off neighbouring pairs
        assert np.ptp(np.log(got[1:] / got[:-1])) < 1e-12
        stretched.append((got[0] / got[1]) ** 64)
        assert close(got, plain * s ** (-np.arange(64) / 63), 10)
    printed("20221.26", stretched[0])
    printed("40889.94", stretched[1])
    printed("82684.62", stretched[2])
    printed("167198.74", stretched[3])


def test_equation_32_factor_follows_the_length():
    scaling = DynamicNTK(factor=2.0, original_max_position=4096)
    assert close(scaled(scaling, seq_len=4096), ladder(10_000.0, 128))
    assert close(scaled(scaling, seq_len=100), ladder(10_000.0, 128))
    got = scaled(scaling, seq_len=8192)
    assert ladder(10_000.0, 128)[-1] / got[-1] == pytest.approx(3)  # 2 * 8192 / 4096 - 1
    printed("30527.74", (got[0] / got[1]) ** 64)
    lengths = np.array([4096, 5000, 6000, 16384])
    factors = [ladder(10_000.0, 128)[-1] / scaled(scaling, seq_len=int(n))[-1] for n in lengths]
    assert np.diff(factors) / np.diff(lengths) == pytest.approx(2 / 4096)  # a straight line in the length
    for length in (100, 4096, 5000, 16384):  # with f = 1, the paper's max(1, l / L)
        got = scaled(DynamicNTK(factor=1.0, original_max_position=4096), seq_len=length)
        assert ladder(10_000.0, 128)[-1] / got[-1] == pytest.approx(max(1, length / 4096))


def turns(theta: np.ndarray, length: int) -> np.ndarray:
    return length * theta / (2 * math.pi)


def test_equation_33_ramp_over_turns():
    """The share that is kept, recovered from the scaled frequencies, is a straight line in the turns from 1 to 32."""
    plain, got = ladder(10_000.0, 128), scaled(YaRNPaper(factor=16.0, original_max_position=4096))
    kept = (got / plain - 1 / 16) / (1 - 1 / 16)
    r = turns(plain, 4096)
    assert close(kept[r >= 32], 1)
    assert close(kept[r <= 1], 0)
    between = (r > 1) & (r < 32)
    slope, start = np.polyfit(r[between], kept[between], 1)
    assert (slope, slope + start) == pytest.approx((1 / 31, 0), abs=1e-9)
    assert kept[between] == pytest.approx(slope * r[between] + start, abs=1e-9)


def test_equation_34_ramp_over_the_index():
    plain, got = ladder(10_000.0, 128), scaled(YaRN(factor=16.0, original_max_position=4096))
    # the index with r turns, by inverting r = L theta / 2 pi on the logarithmic ladder
    grid = np.interp(-np.log([32.0, 1.0]), -np.log(turns(plain, 4096)), np.arange(64))
    printed("20.9445", grid[0])
    printed("45.0269", grid[1])
    low, high = math.floor(grid[0]), math.ceil(grid[1])
    printed("20", low)
    printed("46", high)
    interpolated = (1 - got / plain) / (1 - 1 / 16)
    assert interpolated == pytest.approx(np.interp(np.arange(64), [low, high], [0, 1]), abs=1e-12)
    paper = scaled(YaRNPaper(factor=16.0, original_max_position=4096))
    assert int((got / paper).argmax()) == 38
    printed("38", 38)
    printed("3.0", (got / paper).max())
    printed("0.308", (got[38] / plain[38] - 1 / 16) / (1 - 1 / 16))
    printed("0.056", (paper[38] / plain[38] - 1 / 16) / (1 - 1 / 16))


def test_equation_35_published_values():
    for scheme in (YaRN, YaRNPaper):
        factors = [scheme(factor=s, original_max_position=4096).attention_factor() for s in (4.0, 16.0, 40.0)]
        printed("1.138629", factors[0])
        printed("1.277259", factors[1])
        printed("1.368888", factors[2])
        assert [math.exp(10 * (a - 1)) for a in factors] == pytest.approx([4, 16, 40])


def test_equation_36_three_regimes():
    """Float32 values published with Llama 3.1, and the blend as a straight line in the turns."""
    plain, got = ladder(500_000.0, 128), scaled(Llama3(8.0, 1.0, 4.0, 8192), base=500_000.0)
    published = {28: 3.21144611e-03, 29: 2.16657063e-03, 30: 1.37189368e-03, 31: 8.5675146e-04, 32: 5.24846022e-04}
    published |= {33: 3.1269365e-04, 34: 1.78507791e-04, 35: 9.55621217e-05, 63: 3.06892588e-07}
    for pair, value in published.items():
        assert got[pair] == pytest.approx(value, rel=4 * 2**-23)
    ratio = plain / got
    kept, slowed = np.isclose(ratio, 1, rtol=1e-12), np.isclose(ratio, 8, rtol=1e-12)
    assert np.flatnonzero(kept).tolist() == list(range(29))
    assert np.flatnonzero(slowed).tolist() == list(range(35, 64))
    between = ~(kept | slowed)
    share = (got / plain - 1 / 8) / (1 - 1 / 8)
    assert share[between] == pytest.approx(np.interp(turns(plain, 8192)[between], [1, 4], [0, 1]), abs=1e-12)


def test_equation_37_divisors_and_factor():
    scaling = LongRoPE((1.0, 2.0), (4.0, 32.0), original_max_position=4096, factor=32.0)
    for length, divisors in ((4096, (1, 2)), (4097, (4, 32))):
        assert close(ladder(10_000.0, 4) / scaled(scaling, head_dim=4, seq_len=length), divisors, 32)
    assert scaling.attention_factor() ** 2 == pytest.approx(1 + 5 / 12)  # ln 2^5 / ln 2^12
    printed("1.19023807", scaling.attention_factor())


def test_equation_38_fastest_pairs_of_the_full_ladder():
    got = scaled(Proportional(fraction=0.25), base=1e6, head_dim=512)
    assert close(got[:64], ladder(1e6, 512)[:64])
    assert not got[64:].any()
    printed("64", int((got > 0).sum()))
    printed("0.0334", got[63])
    partial = RotarySpec(head_dim=512, rotary_dim=128, base=1e6).inv_freq()
    assert len(partial) == 64
    printed("1.24e-6", partial[-1])


# --- several axes ---------------------------------------------------------------------------------------------------


def exp(j: np.ndarray) -> np.ndarray:
    return torch.linalg.matrix_exp(torch.from_numpy(j)).numpy()


def test_equation_39_relative_only_if_the_generators_commute():
    def law_error(j: np.ndarray) -> float:
        def r(p):
            return exp(np.tensordot(p, j, 1))

        p, other = np.array([2.0, -1.0]), np.array([0.5, 3.0])
        return float(np.abs(r(p).T @ r(other) - r(other - p)).max())

    free = RNG.standard_normal((2, 4, 4))
    free = free - free.transpose(0, 2, 1)
    assert np.abs(free[0] @ free[1] - free[1] @ free[0]).max() > 0.1
    assert law_error(free) > 0.1
    commuting = np.stack([free[0], 0.3 * free[0] @ free[0] @ free[0]])  # odd powers of one: skew, and they commute
    assert law_error(commuting) < 1e-10
    for axes in (Axial((2, 2)), Sections((1, 3)), Mixed(((1.0, 0.6, 0.0, -0.8), (0.0, 0.8, 1.0, 0.6)))):
        j = generator(RotarySpec(head_dim=8, axes=axes)).numpy()
        assert close(j[0] @ j[1], j[1] @ j[0])
        assert law_error(j) < 1e-12


def test_equation_40_one_angle_per_pair():
    weights = ((1.0, 0.6, 0.0, -0.8), (0.0, 0.8, 1.0, 0.6))
    spec = RotarySpec(head_dim=8, axes=Mixed(weights))
    rotation = Rotation.at(spec, torch.tensor([[3, -7], [5, 100]]), dtype=torch.float64)
    for token, p in enumerate(([3, 5], [-7, 100])):
        angle = np.array(p) @ np.array(weights) * ladder(10_000.0, 8)
        assert close(rotation.cos[token], np.cos(angle), 100)
        assert close(rotation.sin[token], np.sin(angle), 100)
    # sections: one ladder, its pairs given to time, height and width in blocks or in turns
    p = np.array([3, 5, -7])
    for axes, owner in (
        (Sections((4, 1, 3)), [0, 0, 0, 0, 1, 2, 2, 2]),
        (InterleavedSections((4, 2, 2)), [0, 1, 2, 0, 1, 2, 0, 0]),
    ):
        by_sections = Rotation.at(RotarySpec(head_dim=16, axes=axes), torch.from_numpy(p)[:, None], dtype=torch.float64)
        assert close(by_sections.sin[0], np.sin(p[owner] * ladder(10_000.0, 16)), 10)
    # axial: for two axes b^(-4j/d), first block by the first coordinate
    axial = Rotation.at(RotarySpec(head_dim=8, axes=Axial((2, 2))), torch.tensor([[3], [5]]), dtype=torch.float64)
    angle = np.array([3, 3, 5, 5]) * np.tile(10_000.0 ** (-4 * np.arange(2) / 8), 2)
    assert close(axial.cos[0], np.cos(angle), 10)


def test_equation_41_text_is_one_dimensional():
    plain = Rotation.at(RotarySpec(head_dim=128), torch.arange(50), dtype=torch.float64)
    for axes in (Sections((16, 24, 24)), InterleavedSections((24, 20, 20))):
        spec = RotarySpec(head_dim=128, axes=axes)
        assert np.asarray(axes.weights(64)).sum(0).tolist() == [1] * 64
        text = Rotation.at(spec, torch.arange(50).expand(3, -1), dtype=torch.float64)
        assert torch.equal(text.cos, plain.cos)
        assert torch.equal(text.sin, plain.sin)
    # without weights that add up to 1 it is not
    mixed = RotarySpec(head_dim=4, axes=Mixed(((1.0, 0.6), (0.0, 0.8))))
    cos = Rotation.at(mixed, torch.tensor([[9], [9]]), dtype=torch.float64).cos
    assert not close(cos[0], np.cos(9 * ladder(10_000.0, 4)), 10)
