"""Sections 1 to 4 and 7 of docs/theory.md: from the requirement to the operator, in float64."""

import numpy as np
import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_rotary
from phasor.rotary.matrix import complex_form, generator, rotation_matrix

from .page import close, ladder, turn

RNG = np.random.default_rng(0)


def skew(n: int) -> np.ndarray:
    a = RNG.standard_normal((n, n))
    return a - a.T


def exp(j: np.ndarray) -> np.ndarray:
    return torch.linalg.matrix_exp(torch.from_numpy(j)).numpy()


def cayley(j: np.ndarray) -> np.ndarray:
    """An orthogonal matrix made without an exponential."""
    eye = np.eye(len(j))
    return np.linalg.solve(eye + j, eye - j)


def dense(spec: RotarySpec, position: int) -> np.ndarray:
    return rotation_matrix(Rotation.at(spec, torch.tensor([position]), dtype=torch.float64))[0].numpy()


def by_library(x: np.ndarray, spec: RotarySpec, position: int) -> np.ndarray:
    rotation = Rotation.at(spec, torch.tensor([position]), dtype=torch.float64)
    return apply_rotary(torch.from_numpy(x).view(1, 1, 1, -1), rotation).flatten().numpy()


def test_equation_01_only_the_difference_counts():
    """Powers of an orthogonal matrix satisfy it; the same powers, growing with the position, do not."""
    a = cayley(skew(5))
    power = [np.linalg.matrix_power(a, m) for m in range(8)]
    for m in range(7):
        for n in range(7):
            assert close(power[m].T @ power[n], power[m + 1].T @ power[n + 1], 10)
    growing = [(1 + 0.1 * m) * p for m, p in enumerate(power)]
    assert np.abs(growing[0].T @ growing[1] - growing[1].T @ growing[2]).max() > 0.05
    # an invertible A_0 may be divided out: the law stays
    start = RNG.standard_normal((5, 5))
    maps = [p @ start for p in power]
    assert close(maps[1].T @ maps[3], maps[4].T @ maps[6], 100)
    assert not close(maps[0], np.eye(5))


def test_equation_02_the_maps_are_powers():
    """Solve the requirement as equations: with A_1 orthogonal, A_m^T A_{m+1} = B(1) leaves only A_{m+1} = A_m A_1."""
    first = cayley(skew(4))
    maps = [np.eye(4), first]
    for _ in range(6):
        maps.append(np.linalg.solve(maps[-1].T, maps[0].T @ maps[1]))
    for m in range(4):
        assert close(maps[m].T @ maps[m], np.eye(4), 10)
        for k in range(4):
            assert close(maps[m + k], maps[m] @ maps[k], 10)
        assert close(maps[m], np.linalg.matrix_power(first, m), 10)
    # if A_1 is not orthogonal, these same equations have a solution for n = m + 1 but the requirement fails further on
    bent = [np.eye(4), first + 0.1]
    for _ in range(2):
        bent.append(np.linalg.solve(bent[-1].T, bent[1]))
    assert np.abs(bent[0].T @ bent[2] - bent[1].T @ bent[3]).max() > 1e-3


@pytest.mark.parametrize("n", [4, 5])
def test_equation_03_skew_matrices_are_turning_planes(n):
    """The planes come from the eigenvectors of the Hermitian matrix iJ, the turned vectors from the exponential."""
    j = skew(n)
    speeds, vectors = np.linalg.eigh(-1j * j)
    fast = speeds > 1e-9
    assert fast.sum() == n // 2
    theta, v = speeds[fast], vectors[:, fast]
    basis = np.stack((v.real, -v.imag), axis=-1).reshape(n, -1) * np.sqrt(2)
    assert close(basis.T @ basis, np.eye(2 * len(theta)), 10)
    blocks = np.zeros((2 * len(theta),) * 2)
    for i, t in enumerate(theta):
        blocks[2 * i, 2 * i + 1], blocks[2 * i + 1, 2 * i] = -t, t
    assert close(basis @ blocks @ basis.T, j, 10)
    for m in (1, 2, 7):
        assert close(exp(m * j), np.linalg.matrix_power(exp(j), m), 100)
        assert close(exp(m * j).T @ exp(m * j), np.eye(n), 100)
    assert np.linalg.det(exp(j)) == pytest.approx(1)


def test_equation_03_is_the_generator_of_the_library():
    spec = RotarySpec(head_dim=8, interleaved=True)
    for m in (0, 1, 5, 100):
        assert close(exp(m * generator(spec)[0].numpy()), dense(spec, m), 200)


def test_equation_04_every_solution_is_rotary_in_another_basis():
    theta = ladder(100.0, 6)
    u = cayley(skew(6))
    blocks = np.zeros((6, 6))
    for i, t in enumerate(theta):
        blocks[2 * i, 2 * i + 1], blocks[2 * i + 1, 2 * i] = -t, t
    j = u @ blocks @ u.T
    q, k = RNG.standard_normal((2, 6))
    for m, n in ((0, 0), (5, 2), (3, 9)):
        left = (exp(m * j) @ q) @ (exp(n * j) @ k)
        assert close(left, turn(u.T @ q, m, theta) @ turn(u.T @ k, n, theta), 100)


def test_equation_05_dot_product_needs_the_conjugate():
    a, b = RNG.standard_normal((2, 2))
    assert close((complex(*a) * complex(*b).conjugate()).real, a @ b, 4)
    assert close((complex(*a) * complex(*b)).real, a[0] * b[0] - a[1] * b[1], 4)


def test_equation_06_turning_a_number_is_the_rotation_of_the_library():
    spec = RotarySpec(head_dim=2)
    q = RNG.standard_normal(2)
    for m in (0, 1, 7, -3):
        z = complex(*q) * np.exp(1j * m)
        assert close(by_library(q, spec, m), [z.real, z.imag], 4)
        factor = complex_form(Rotation.at(spec, torch.tensor([m]), dtype=torch.float64))
        assert close(factor.item(), np.exp(1j * m), 4)


def test_equation_07_positions_cancel():
    q, k = RNG.standard_normal((2, 2))
    for m, n in ((3, 2), (103, 102), (10**6 + 1, 10**6)):
        turned = by_library(q, RotarySpec(head_dim=2), m) @ by_library(k, RotarySpec(head_dim=2), n)
        expected = (complex(*q) * complex(*k).conjugate() * np.exp(1j)).real
        assert turned == pytest.approx(expected, abs=1e-12)


def test_equation_08_the_phase_is_linear():
    """The equations phi(m) - phi(n) = phi(m+1) - phi(n+1) for positions 0 to 6 leave exactly the lines."""
    rows = []
    for m in range(6):
        for n in range(6):
            row = np.zeros(7)
            row[m] += 1
            row[n] -= 1
            row[m + 1] -= 1
            row[n + 1] += 1
            rows.append(row)
    assert np.linalg.matrix_rank(np.array(rows)) == 7 - 2
    for solution in (np.ones(7), np.arange(7.0)):
        assert not (np.array(rows) @ solution).any()


def test_equation_09_matrix_of_a_complex_factor():
    for angle in (0.3, 2.0, -1.0):
        r = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        a = RNG.standard_normal(2)
        z = np.exp(1j * angle) * complex(*a)
        assert close(r @ a, [z.real, z.imag], 4)
    assert close(dense(RotarySpec(head_dim=2), 2), [[np.cos(2), -np.sin(2)], [np.sin(2), np.cos(2)]])


def test_equation_10_laws_of_a_turn():
    spec = RotarySpec(head_dim=2)
    a, b, both, back = (dense(spec, m) for m in (3, 5, 8, -3))
    assert close(a @ b, both)
    assert close(a.T, back)
    assert close(a @ back, np.eye(2))
    assert np.linalg.det(a) == pytest.approx(1)
    x = RNG.standard_normal(2)
    assert np.hypot(*(a @ x)) == pytest.approx(np.hypot(*x))


def test_equation_11_score_written_out():
    q, k = RNG.standard_normal((2, 2))
    c, s = np.cos(4), np.sin(4)
    for m, n in ((4, 0), (9, 5)):
        score = turn(q, m, np.ones(1)) @ turn(k, n, np.ones(1))
        assert close(score, q @ np.array([[c, s], [-s, c]]) @ k, 10)
        assert close(score, q @ dense(RotarySpec(head_dim=2), n - m) @ k, 10)


def test_equation_12_amplitude_and_phase():
    q, k = RNG.standard_normal((2, 2))
    for distance in (0, 1, 50):
        wave = np.hypot(*q) * np.hypot(*k) * np.cos(distance + np.arctan2(q[1], q[0]) - np.arctan2(k[1], k[0]))
        assert close(q @ dense(RotarySpec(head_dim=2), -distance) @ k, wave, 10)


def test_equation_13_blocks_on_the_diagonal():
    got = dense(RotarySpec(head_dim=6, base=100.0, interleaved=True), 7)
    for i, theta in enumerate(ladder(100.0, 6)):
        c, s = np.cos(7 * theta), np.sin(7 * theta)
        assert close(got[2 * i : 2 * i + 2, 2 * i : 2 * i + 2], [[c, -s], [s, c]], 8)
        got[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = 0
    assert not got.any()


@pytest.mark.parametrize("interleaved", [True, False])
def test_equation_14_score_of_many_pairs(interleaved):
    spec = RotarySpec(head_dim=64, interleaved=interleaved)
    theta = ladder(10_000.0, 64)
    q, k = RNG.standard_normal((2, 64))
    split = (lambda x: x[0::2] + 1j * x[1::2]) if interleaved else (lambda x: x[:32] + 1j * x[32:])
    for m, n in ((0, 0), (17, 5), (1017, 1005), (3, 40)):
        score = by_library(q, spec, m) @ by_library(k, spec, n)
        assert close(score, (split(q) * split(k).conj() * np.exp(1j * (m - n) * theta)).sum().real, 1000)
        assert close(score, q @ dense(spec, n - m) @ k, 1000)


def test_equation_15_two_products_per_channel():
    x, theta = RNG.standard_normal(8), ladder(10_000.0, 8)
    c, s = np.cos(11 * theta).repeat(2), np.sin(11 * theta).repeat(2)
    swapped = np.array([-x[1], x[0], -x[3], x[2], -x[5], x[4], -x[7], x[6]])
    assert close(x * c + swapped * s, turn(x, 11, theta), 20)
    assert close(by_library(x, RotarySpec(head_dim=8, interleaved=True), 11), turn(x, 11, theta), 20)


def test_equation_16_other_order_of_the_same_channels():
    x, theta = RNG.standard_normal(8), ladder(10_000.0, 8)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    pi = np.eye(8)[order]
    inter, halves = (dense(RotarySpec(head_dim=8, interleaved=i), 11) for i in (True, False))
    assert close(halves, pi @ inter @ pi.T)
    c, s = np.cos(11 * theta), np.sin(11 * theta)
    a, b = x[:4], x[4:]
    assert close(halves @ x, np.concatenate((a * c - b * s, b * c + a * s)), 20)
    assert Layout(head_dim=8, interleaved=True).permutation(Layout(head_dim=8)) == order.tolist()


def test_equation_17_backward_turns_back():
    """Against central differences, exact for a linear map up to rounding."""
    spec, x, g = RotarySpec(head_dim=6), RNG.standard_normal(6), RNG.standard_normal(6)
    numeric = [(by_library(x + e, spec, 9) - by_library(x - e, spec, 9)) @ g / 2 for e in np.eye(6)]
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    y = apply_rotary(leaf.view(1, 1, 1, -1), Rotation.at(spec, torch.tensor([9]), dtype=torch.float64))
    y.backward(torch.from_numpy(g).view(1, 1, 1, -1))
    assert close(leaf.grad, numeric, 20)
    assert close(leaf.grad, by_library(g, spec, -9), 20)


@pytest.mark.parametrize("trailing", [False, True])
def test_equation_28_partial_rotary(trailing):
    spec = RotarySpec(head_dim=10, rotary_dim=4, trailing=trailing, interleaved=True)
    q, k = RNG.standard_normal((2, 10))
    rot, rest = (slice(6, 10), slice(0, 6)) if trailing else (slice(0, 4), slice(4, 10))
    theta = np.array([1.0, 0.01])  # 10000^(-2i/4): the exponent has the rotary width
    z = (q[rot][0::2] + 1j * q[rot][1::2]) * (k[rot][0::2] - 1j * k[rot][1::2])
    for m, n in ((3, 1), (103, 101)):
        expected = (z * np.exp(2j * theta)).sum().real + q[rest] @ k[rest]
        assert close(by_library(q, spec, m) @ by_library(k, spec, n), expected, 100)
