"""Sections 5 and 6 of docs/theory.md: the ladder, and what decays. d = 128, base 10000 unless said otherwise."""

import math
from decimal import Decimal

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from phasor import RotarySpec, Rotation
from phasor.rotary.frequencies import inverse_frequencies
from phasor.rotary.matrix import rotation_matrix
from phasor.tools.inspect.curves import decay, decay_bound, first_negative

from .page import close, fresnel, ladder, printed, rounds_to, table

THETA = ladder(10_000.0, 128)
SPEC = RotarySpec(head_dim=128)


def mean_cosine(distances: np.ndarray, theta: np.ndarray = THETA) -> np.ndarray:
    return np.cos(np.multiply.outer(distances, theta)).mean(-1)


def bound(distances: np.ndarray) -> np.ndarray:
    return np.abs(np.exp(1j * np.multiply.outer(distances, THETA)).cumsum(-1)).mean(-1)


def integral(distance: float, base: float = 10_000.0) -> mpf:
    return (mp.ci(distance) - mp.ci(mpf(distance) / mpf(base))) / mp.log(base)


def test_equation_18_ladder_and_wavelengths():
    """By the recursion theta_{i+1} = theta_i b^(-1/P) from theta_0 = 1, as a geometric ladder must."""
    ratio, value = mp.root(mpf(10_000), 64), mpf(1)
    for got in inverse_frequencies(Decimal(10_000), 128):
        assert abs(mpf(str(got)) - value) < mpf(10) ** -45
        value /= ratio
    assert close(SPEC.inv_freq().numpy(), THETA)
    roformer = [10_000 ** (-2 * (i - 1) / 128) for i in range(1, 65)]
    assert close(roformer, THETA)
    assert THETA[-1] > 1 / 10_000
    printed("6.283", 2 * math.pi / THETA[0])
    printed("54410", 2 * math.pi / THETA[-1])


def test_equation_19_turns_and_the_critical_dimension():
    for length, base in ((2048, 1e4), (4096, 1e4), (8192, 5e5), (40_000, 1e6)):
        theta = ladder(base, 128)
        whole = sum(1 for t in theta if length * t / (2 * math.pi) > 1)
        assert whole == math.ceil(64 * math.log(length / (2 * math.pi)) / math.log(base))
    complete = int((4096 / (2 * math.pi / THETA) > 1).sum())
    printed("46", complete)
    printed("18", 64 - complete)
    printed("92", 2 * complete)


def test_equation_20_independent_vectors_do_not_decay():
    """E and Var of q^T R k from second moments: E[q_a k_b] = 0, E[(q_a k_b)(q_c k_d)] = delta_ac delta_bd."""
    for distance in (0, 1, 100, 100_000):
        r = rotation_matrix(Rotation.at(SPEC, torch.tensor([-distance]), dtype=torch.float64))[0]
        assert float(torch.trace(r.T @ r)) == pytest.approx(128)
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 20_000, 64)) + 1j * rng.standard_normal((2, 20_000, 64))
    for distance in (0, 100_000):
        score = (q * k.conj() * np.exp(1j * distance * THETA)).sum(-1).real
        assert abs(score.mean()) < 5 * math.sqrt(128 / 20_000)
        assert score.var() == pytest.approx(128, rel=5 * math.sqrt(2 / 20_000))


def test_equation_21_mean_score_of_equal_vectors():
    """E[(R_m q) . (R_n q)] over an orthonormal basis of q, which has E[q q^T] = I / d."""
    for distance in (0, 3, 64, 5000):
        r = rotation_matrix(Rotation.at(SPEC, torch.tensor([-distance]), dtype=torch.float64))[0]
        expected = float(mean_cosine(np.array([distance]))[0])
        q = torch.linalg.qr(torch.randn(128, 128, dtype=torch.float64)).Q
        assert ((r @ q) * q).sum().item() / 128 == pytest.approx(expected)
        assert decay(SPEC, torch.tensor(distance)).item() == pytest.approx(expected, abs=1e-12)


def test_equation_22_summation_by_parts():
    rng = np.random.default_rng(0)
    for distance in (1, 30, 1000):
        z = np.exp(1j * distance * THETA)
        h = rng.standard_normal(64) + 1j * rng.standard_normal(64)
        total, sums = (h * z).sum(), z.cumsum()
        steps = np.append(h[1:], 0) - h
        assert close(total, -(sums * steps).sum(), 1000)
        assert abs(total) <= np.abs(steps).max() * np.abs(sums).sum()
    # the last step counts: with h constant all others vanish
    assert abs(np.exp(1j * THETA).sum()) <= np.abs(np.exp(1j * THETA).cumsum()).sum()


def test_equation_23_bound_of_the_library():
    for distance in (0, 1, 256, 4095):
        assert decay_bound(SPEC, torch.tensor(distance)).item() == pytest.approx(float(bound(np.array(distance))))
    assert bound(np.array(0)) == pytest.approx((1 + 64) / 2)


def test_equation_24_cosine_integral():
    """Quadrature over whole waves against the closed form, and the sum with many pairs against both."""
    for distance in (1, 10, 100):
        points = [mpf(i) / 64 for i in range(65)]
        with mp.workdps(20):
            quadrature = mp.quad(lambda t, d=distance: mp.cos(d * mpf(10_000) ** (-t)), points)
        assert abs(quadrature - integral(distance)) < mpf(10) ** -15
        many = np.cos(distance * 10_000.0 ** (-(np.arange(100_000) + 0.5) / 100_000)).mean()
        assert many == pytest.approx(float(integral(distance)), abs=1e-6)
    for distance in (16, 64, 256):
        approximate = 1 - (math.log(distance) + float(mp.euler)) / math.log(10_000)
        assert float(integral(distance)) == pytest.approx(approximate, abs=1 / (distance * math.log(10_000)) + 1e-4)
    printed("0.6165", mp.findroot(mp.ci, 0.6))
    with mp.workdps(15):
        printed("6167", next(d for d in range(5600, 10_000) if integral(d) < 0))
    # before that G > 0, because Ci(x) >= -1 / x and Ci(x) <= gamma + ln x
    d = np.arange(2, 5600)
    assert (-1 / d - float(mp.euler) - np.log(d / 10_000)).min() > 0
    assert integral(1) > 0


def test_table_of_decay():
    for distance, curve, cosine, smooth in table(r"$\Delta$"):
        at = np.array(int(distance))
        assert rounds_to(curve, bound(at)), distance
        assert rounds_to(cosine, mean_cosine(at)), distance
        assert rounds_to(smooth, integral(int(distance))), distance


def test_equation_25_rate_of_decay():
    """Ladders with a slope of at least c, by midpoint sums; t^2, whose slope is 0 at 0, breaks the rate."""
    for theta, slope in (
        (lambda t: 10.0**-t, math.log(10) / 10),
        (lambda t: 1 + t, 1.0),
        (lambda t: t * (1 + t), 1.0),
    ):
        for distance in (5, 50, 300):
            t = (np.arange(100_000) + 0.5) / 100_000
            value = abs(np.exp(1j * distance * theta(t)).mean())
            assert value <= 2 / (slope * distance)
            assert distance < 50 or value > 0.01 / (slope * distance)
    for distance in (1000, 10_000):
        assert float(fresnel(distance)) == pytest.approx(math.sqrt(math.pi / distance) / 2, rel=0.01)
        assert fresnel(distance) * distance > 10


def test_equation_26_mean_square():
    """The time average of products of cosines, in closed form, and measured over distances up to 200000."""
    n = 10**7
    angles = np.concatenate([np.subtract.outer(THETA, THETA).ravel(), np.add.outer(THETA, THETA).ravel()])
    with np.errstate(invalid="ignore"):
        means = np.sin((n - 0.5) * angles) / (2 * n * np.sin(angles / 2)) + 1 / (2 * n)  # Dirichlet's kernel
    means[angles == 0] = 1
    assert means.sum() / 2 / 64**2 == pytest.approx(1 / 128, rel=0.01)
    printed("0.0884", 128**-0.5)
    for between, value in table(r"range of $\Delta$"):
        low, high = (int(x) for x in between.split(" to "))
        assert rounds_to(value, np.sqrt((mean_cosine(np.arange(low, high)) ** 2).mean())), between
    printed("21.8", math.pi * 64 / math.log(10_000))


def test_equation_27_first_negative_distances():
    for base, distance in ((1e4, 1707), (5e5, 18438), (1e6, 27115)):  # computed independently; 1707 is also in print
        g = mean_cosine(np.arange(distance + 1), ladder(base, 128))
        assert g[:-1].min() >= 0 > g[-1]
        printed(str(distance), distance)
        assert first_negative(RotarySpec(head_dim=128, base=base), None, distance + 1) == distance


def test_equation_27_smallest_bases():
    """At the printed base, up to its last digit, the condition holds; one part in a thousand below it fails."""
    for length, base, su, paper in table(r"$L$"):
        digit = 10.0 ** -len(base.partition(".")[2])
        distances = np.arange(int(length))
        for factor, holds in ((float(base) + digit, True), (float(base) * 0.999, False)):
            theta = factor ** (-np.arange(64) / 64)
            lowest = min(mean_cosine(part, theta).min() for part in np.array_split(distances, 64))
            assert bool(lowest >= 0) is holds, (length, factor)
        assert float(su) == float(f"{float(base):.1e}")
        assert float(paper) >= float(su)
    assert sum(float(paper) > float(su) for _, _, su, paper in table(r"$L$")) == 4
    above = mean_cosine(np.arange(4096), 27_000.0 ** (-np.arange(64) / 64))
    printed("4079", int((above < 0).argmax()))
    below = mean_cosine(np.arange(4096), 26_952.35 ** (-np.arange(64) / 64))
    assert below.min() >= 0
    printed("26952.34", 26_952.34)


def test_equation_27_no_smaller_base_for_1024():
    """A grid of bases from 2 up, 0.2 % apart."""
    coarse, fine = np.arange(0, 1024, 8), np.arange(1024)
    for base in np.exp(np.arange(math.log(2), math.log(4293), 0.002)):
        theta = base ** (-np.arange(64) / 64)
        assert mean_cosine(coarse, theta).min() < 0 or mean_cosine(fine, theta).min() < 0, base
