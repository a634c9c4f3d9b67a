"""Sections 12 and 13 of docs/theory.md: sinusoids and relative encodings, against sums written out in float64."""

import math

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from phasor.encodings import ALiBi, Shaw, T5Bias, TransformerXL, alibi_slopes, shift_matrix, sinusoids, t5_bucket
from phasor.encodings.attention import attention

from .page import close, ladder

RNG = np.random.default_rng(0)


def sinusoid(t: float, theta: np.ndarray) -> np.ndarray:
    """sin and cos as the parts of exp(i t theta), interleaved."""
    z = np.exp(1j * t * theta)
    return np.stack((z.imag, z.real), -1).reshape(-1)


def pe(positions: list[int], dim: int, **layout) -> np.ndarray:
    return sinusoids(torch.tensor(positions), dim, dtype=torch.float64, **layout).numpy()


def softmax(z: np.ndarray) -> np.ndarray:
    w = np.exp(z - z.max())
    return w / w.sum()


def test_equation_48_interleaved_sines_and_cosines():
    for t in (0, 1, 7, 1000):
        value = [f(t * mpf(10_000) ** (-mpf(2 * i) / 8)) for i in range(4) for f in (mp.sin, mp.cos)]
        assert close(pe([t], 8)[0], [float(v) for v in value], 4)


def test_equation_49_shift_is_linear():
    """The matrix is what least squares finds from PE(t) to PE(t + k), without being told its form."""
    dim, k = 4, 3
    here, there = pe(list(range(50)), dim, base=100.0), pe(list(range(k, 50 + k)), dim, base=100.0)
    fitted = np.linalg.lstsq(here, there, rcond=None)[0].T
    assert fitted == pytest.approx(shift_matrix(k, dim, base=100.0).numpy(), abs=1e-10)
    for i, theta in enumerate(ladder(100.0, dim)):
        c, s = math.cos(k * theta), math.sin(k * theta)
        assert fitted[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] == pytest.approx(np.array([[c, s], [-s, c]]), abs=1e-10)
    assert np.linalg.det(fitted) == pytest.approx(1)


def test_equation_50_raw_dot_product():
    for t, other in ((5, 2), (1005, 1002), (3, 900)):
        dot = pe([t], 128)[0] @ pe([other], 128)[0]
        expected = mp.fsum(mp.cos((t - other) * mpf(10_000) ** (-mpf(i) / 64)) for i in range(64))
        assert close(dot, float(expected), 64)


def test_equation_51_the_matrix_between():
    """The expansion; and the last term depends on n - m for a commuting matrix, not for a free one."""
    theta = ladder(100.0, 4)
    x, y = RNG.standard_normal((2, 4))
    free = RNG.standard_normal((4, 4))
    p = [sinusoid(t, theta) for t in range(120)]
    whole = (x + p[3]) @ free @ (y + p[9])
    assert close(whole, x @ free @ y + x @ free @ p[9] + p[3] @ free @ y + p[3] @ free @ p[9], 100)
    z = RNG.standard_normal(2) + 1j * RNG.standard_normal(2)  # one complex factor per pair commutes with every turn
    commuting = np.zeros((4, 4))
    for i in range(2):
        commuting[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[z[i].real, -z[i].imag], [z[i].imag, z[i].real]]
    assert close(p[3] @ commuting @ p[9], p[103] @ commuting @ p[109], 100)
    assert abs(p[3] @ free @ p[9] - p[103] @ free @ p[109]) > 0.1
    assert abs(x @ free @ p[9] - x @ free @ p[10]) > 0.01


def test_equation_52_vectors_per_clipped_distance():
    encoding = Shaw(head_dim=4, max_distance=2).double()
    q, k, v = RNG.standard_normal((3, 6, 4))
    a_k, a_v = (t.weight.detach().numpy() for t in (encoding.key_table, encoding.value_table))
    expected = np.zeros((6, 4))
    for m in range(6):
        c = [max(-2, min(2, n - m)) + 2 for n in range(6)]
        logits = np.array([q[m] @ (k[n] + a_k[c[n]]) / 2 for n in range(6)])
        expected[m] = sum(w * (v[n] + a_v[c[n]]) for n, w in enumerate(softmax(logits)))
    q, k, v = (torch.from_numpy(x).view(1, 1, 6, 4) for x in (q, k, v))
    got = attention(q, k, v, encoding, q_positions=torch.arange(6), causal=False)
    assert close(got.detach().view(6, 4), expected, 20)


def test_equation_53_four_terms():
    encoding = TransformerXL(num_heads=1, head_dim=4, dim=6).double()
    w_q, w_e, x = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 6)), RNG.standard_normal((5, 6))
    w_r = encoding.r_proj.weight.detach().numpy()
    u, v = (t.detach().numpy()[0] for t in (encoding.u, encoding.v))
    theta = ladder(10_000.0, 6)
    expected = np.zeros((5, 5))
    for m in range(5):
        for n in range(5):
            r = np.concatenate((np.sin((m - n) * theta), np.cos((m - n) * theta)))
            q, content, position = w_q @ x[m], w_e @ x[n], w_r @ r
            expected[m, n] = (q @ content + q @ position + u @ content + v @ position) / 2
            assert close(expected[m, n], ((q + u) @ content + (q + v) @ position) / 2, 100)
    q, k = (torch.from_numpy(x @ w.T).view(1, 1, 5, 4) for w in (w_q, w_e))
    bias = encoding.bias(q, k, torch.arange(5), torch.arange(5), scale=0.5)
    assert close((0.5 * q @ k.mT + bias).detach()[0, 0], expected, 100)


def test_equation_54_buckets():
    """The logarithm in 60 digits, with an allowance far below any gap for ratios that are whole numbers."""

    def bucket(r: int) -> int:
        if r < 16:
            return r
        return min(31, 16 + int(mp.floor(mp.log(mpf(r) / 16) / mp.log(mpf(128) / 16) * 16 + mpf(10) ** -40)))

    got = t5_bucket(-torch.arange(300), bidirectional=False).tolist()
    assert got == [bucket(r) for r in range(300)]
    assert [got.index(b) for b in (15, 16, 17, 30, 31)] == [15, 16, 19, 99, 113]
    assert got[112] == 30
    encoding = T5Bias(num_heads=2, bidirectional=False)
    q = torch.zeros(1, 2, 1, 4)
    bias = encoding.bias(q, q, torch.tensor([20]), torch.arange(21), scale=1.0)
    table = encoding.table.weight
    for n in range(21):
        assert torch.equal(bias.reshape(2, 21)[:, n], table[bucket(20 - n)])


def test_equation_55_penalty():
    """Slopes printed in the paper for 8 heads: 1/2, 1/4, ... 1/256."""
    assert alibi_slopes(8) == tuple(1 / 2**h for h in range(1, 9))
    q = torch.zeros(1, 8, 4, 2, dtype=torch.float64)
    bias = ALiBi(num_heads=8).bias(q, q, torch.arange(4), torch.arange(4), scale=1.0)
    for h in range(8):
        for m in range(4):
            for n in range(4):
                assert bias.reshape(8, 4, 4)[h, m, n] == -(m - n) / 2 ** (h + 1)
    for heads in (1, 2, 3, 6, 12, 71):  # 71: Falcon-7B
        c = 2 ** int(math.log2(heads))
        more = [2 ** (-8 * (2 * (h - c) - 1) / (2 * c)) for h in range(c + 1, heads + 1)]
        assert alibi_slopes(heads) == pytest.approx([2 ** (-8 * h / c) for h in range(1, c + 1)] + more, rel=1e-15)
    assert alibi_slopes(12)[8:] == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])  # as the authors' get_slopes


def test_equation_56_constant_per_row():
    z, n = RNG.standard_normal(7), np.arange(7)
    for m in (6, 100):
        assert close(softmax(z - 0.25 * (m - n)), softmax(z + 0.25 * n), 4)
    assert not close(softmax(z - 0.25 * (6 - n)), softmax(z - 0.25 * n), 4)  # the sign matters
