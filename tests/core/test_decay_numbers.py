"""Numbers printed in papers and posts about the decay of rotary scores, recomputed from `inv_freq`. d = 128 throughout.

Where only two digits are printed, the finer value comes from an independent float64 recomputation of that source.
"""

import math

import pytest
import torch

from phasor import RotarySpec


def frequencies(base=10_000.0):
    return RotarySpec(head_dim=128, base=base).inv_freq()


def partial_sums(distance, base=10_000.0):
    """sum over j of |S_j| with S_j = sum over i < j of exp(i distance theta_i) (RoFormer, eq. 36)."""
    angle = distance * frequencies(base)
    return torch.polar(torch.ones_like(angle), angle).cumsum(0).abs().sum()


def mean_cosine(distances, base):
    """(2/d) sum over i of cos(distance theta_i): the score of equal vectors, per channel."""
    return torch.outer(distances.double(), frequencies(base)).cos().mean(-1)


DECAY = {
    0: 32.5,
    1: 31.5382,
    2: 28.9560,
    4: 22.6040,
    8: 19.8174,
    16: 15.7750,
    32: 13.3843,
    64: 10.0899,
    128: 9.2729,
    256: 6.5431,
}


@pytest.mark.parametrize("distance, value", DECAY.items())
def test_decay_curve(distance, value):
    """RoFormer Fig. 2, after the Mathematica source in Su's post 8265: (2/d) sum |S_j|."""
    assert partial_sums(distance).item() * 2 / 128 == pytest.approx(value, abs=6e-5)


def test_decay_curve_is_not_monotone():
    """115 of its first 256 steps rise: it is an upper bound and no more."""
    curve = torch.stack([partial_sums(m) for m in range(257)])
    assert int((curve.diff() > 0).sum()) == 115


@pytest.mark.parametrize(
    "distance, value",
    [(0, 16.25), (1, 15.7691), (10, 8.9771), (100, 5.1137), (1000, 2.2354), (2048, 1.8093), (4095, 2.5818)],
)
def test_interpolation_bound(distance, value):
    """Position interpolation, arXiv:2306.15595, Fig. 5, from the code in its appendix C.2: B(s) / d."""
    assert partial_sums(distance).item() / 128 == pytest.approx(value, abs=6e-5)


def test_interpolation_bound_stays_above_one():
    """Same figure: B / d >= 1 for s < 4096, with the minimum 1.1159 at 3643."""
    curve = torch.stack([partial_sums(m) for m in range(4096)]) / 128
    assert curve.argmin() == 3643
    assert curve.min().item() == pytest.approx(1.1159, abs=6e-5)


def test_interpolation_constant():
    """Theorem 2.1 of the same paper: 32 ln 10000 = 294.73."""
    slowest = frequencies()[-1].item()
    base = slowest ** (-128 / 126)
    assert 32 * math.log(base) == pytest.approx(294.7309, abs=6e-5)


@pytest.mark.parametrize(
    "distance, value",
    [(0, 1.0), (1, 0.9702), (2, 0.8966), (4, 0.7592), (64, 0.4769), (512, 0.2194), (2048, 0.1193)],
)
def test_mean_cosine(distance, value):
    assert mean_cosine(torch.tensor([distance]), 10_000.0).item() == pytest.approx(value, abs=6e-5)


@pytest.mark.parametrize("base, distance", [(10_000.0, 1707), (500_000.0, 18438), (1_000_000.0, 27115)])
def test_first_negative_distance(base, distance):
    """Where the mean cosine first falls below zero (the length that the base supports, arXiv:2405.14591)."""
    negative = mean_cosine(torch.arange(distance + 50), base) < 0
    assert int(negative.int().argmax()) == distance


@pytest.mark.parametrize(
    "length, printed, base",
    [
        (1024, 4.3e3, 4293.44),
        (2048, 1.2e4, 11587.24),
        (4096, 2.7e4, 26952.34),
        (8192, 8.4e4, 83763.84),
        (16384, 2.3e5, 234051.33),
        (32768, 6.3e5, 629978.26),
    ],
)
def test_minimal_base(length, printed, base):
    """Smallest base with sum cos >= 0 for every distance below the length (arXiv:2405.14591, table 2; Su 10122).

    At the finer value the condition holds to its last digit, and 0.1 % below it fails.
    """
    assert float(f"{base:.1e}") == printed
    assert mean_cosine(torch.arange(length), base + 0.01).min() >= 0
    assert mean_cosine(torch.arange(length), base * 0.999).min() < 0


@pytest.mark.parametrize("base, distance", [(2.7e4, 4079), (2.3e5, 12865)])
def test_rounded_published_bases_fail(base, distance):
    """The printed two digits are rounded down: with 2.7e4 the sum is negative at 4079, with 2.3e5 at 12865."""
    assert mean_cosine(torch.tensor([distance]), base).item() < 0
    assert (mean_cosine(torch.arange(distance), base) >= 0).all()


@pytest.mark.parametrize(
    "length, base, critical",
    [(2048, 1e4, 82), (4096, 1e4, 92), (8192, 1e4, 100), (16384, 1e4, 110), (8192, 5e5, 70)],
)
def test_critical_dimension(length, base, critical):
    """2 ceil(d/2 ln(L / 2 pi) / ln b) of arXiv:2310.05209: the channels whose wavelength fits into the length."""
    assert 2 * int((2 * math.pi / frequencies(base) < length).sum()) == critical


def test_llama2_pairs_that_never_turn_once():
    """18 of 64 pairs have a wavelength above 4096 with base 10000."""
    assert int((2 * math.pi / frequencies() > 4096).sum()) == 18


def test_the_sum_stops_decaying():
    """For distances far beyond the base the root mean square is 1 / sqrt(128) = 0.0884 (independent random phases)."""
    far = mean_cosine(torch.arange(100_000, 200_000), 10_000.0)
    assert far.square().mean().sqrt().item() == pytest.approx(1 / math.sqrt(128), rel=0.05)
