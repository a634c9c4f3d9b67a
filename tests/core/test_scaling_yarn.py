"""YaRN: the bounds of its ramp, its attention factor, and how far the paper's ramp is from the shipped one."""

import math

import pytest
import torch

from phasor import RotarySpec
from phasor.rotary.scaling import YaRN, YaRNPaper

from . import papers
from .test_scaling import plain, scaled


@pytest.mark.parametrize(
    "length, base, dim, truncate, bounds",
    [
        (2048, 10_000.0, 128, False, (16.128, 40.210)),  # LLaMA
        (2048, 10_000.0, 128, True, (16, 41)),
        (4096, 10_000.0, 128, False, (20.9445, 45.0269)),  # Llama 2
        (4096, 10_000.0, 128, True, (20, 46)),
        (8192, 10_000.0, 128, False, (25.761, 49.843)),  # Mistral
        (8192, 10_000.0, 128, True, (25, 50)),
        (4096, 150_000.0, 64, False, (8.0928, 17.3980)),  # gpt-oss, as it ships
        (4096, 10_000.0, 64, True, (10, 23)),  # DeepSeek-V3
        (4096, 10_000.0, 64, False, (10.472, 22.513)),
    ],
)
def test_yarn_bounds(length, base, dim, truncate, bounds):
    """d ln(L / 2 pi r) / (2 ln b) for r = 32 and r = 1 turns, floored and ceiled, of the models' own configs."""
    got = YaRN(factor=4.0, original_max_position=length, truncate=truncate).ramp_bounds(base, dim)
    assert got == pytest.approx(bounds, abs=0 if truncate else 6e-4)


@pytest.mark.parametrize(
    "base, dim, length",
    [
        (10.0, 8, 1_000_000),  # every pair turns more than once: both bounds beyond the head
        (10.0, 8, 900),  # only the upper bound is
        (10_000.0, 8, 4),  # no pair turns once
        (10_000.0, 8, 40),
        (2.0, 4, 5000),
    ],
)
def test_yarn_beyond_the_head(base, dim, length):
    """Where the clamping of the bounds decides: against the authors' formula in mpmath."""
    for truncate in (True, False):
        scaling = YaRN(factor=4.0, original_max_position=length, truncate=truncate)
        expected = [float(f) for f in papers.scaled(scaling, base, dim // 2, 1)]
        assert scaled(scaling, dim=dim, base=base).tolist() == expected
        single = scaled(scaling, dim=dim, base=base, angles="float32").tolist()
        assert single == pytest.approx(expected, rel=2e-6)


def test_yarn_ramp_that_starts_and_ends_at_one_pair():
    """beta_fast = beta_slow without rounding: the code's guard of 0.001 makes a step instead of a division by zero."""
    scaling = YaRN(factor=4.0, original_max_position=4096, beta_fast=8.0, beta_slow=8.0, truncate=False)
    low, high = scaling.ramp_bounds(10_000.0, 128)
    assert high - low == pytest.approx(0.001)
    ratio = scaled(scaling) / plain()
    assert set(ratio.tolist()) <= {1.0, 0.25}
    assert (ratio == 1).sum() == math.floor(low) + 1
    single = scaled(scaling, angles="float32") / plain()
    torch.testing.assert_close(single, ratio, rtol=2e-6, atol=0)


@pytest.mark.parametrize(
    "factor, value",
    [(2, 1.069315), (4, 1.138629), (8, 1.207944), (16, 1.277259), (32, 1.346574), (40, 1.368888), (1, 1.0), (0.5, 1.0)],
)
def test_yarn_attention_factors(factor, value):
    """0.1 ln s + 1 (YaRN eq. 22; the paper prints 1.208 for s = 8)."""
    for scheme in (YaRN, YaRNPaper):
        got = scheme(factor=float(factor), original_max_position=4096).attention_factor()
        assert got == pytest.approx(value, abs=5e-7)
    spec = RotarySpec(head_dim=8, scaling=YaRN(factor=float(factor), original_max_position=4096))
    assert spec.attention_factor() == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize(
    "fields, value",
    [
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),  # DeepSeek-V3
        ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0),  # DeepSeek-V2-Lite
        ({"mscale": 1.0, "mscale_all_dim": 0.5}, 1.3688879 / 1.1844440),
        ({"mscale": 1.0}, 1.3688879),  # one alone does nothing
        ({"mscale_all_dim": 1.0}, 1.3688879),
        ({"mscale": 0.0, "mscale_all_dim": 1.0}, 1.3688879),
        ({"attention": 0.75}, 0.75),
        ({"attention": 0.75, "mscale": 1.0, "mscale_all_dim": 0.5}, 0.75),
    ],
)
def test_yarn_attention_factor_of_deepseek(fields, value):
    """mscale(s, a) / mscale(s, b) with mscale(s, k) = 0.1 k ln s + 1, s = 40; a stated factor is final."""
    got = YaRN(factor=40.0, original_max_position=4096, **fields).attention_factor()
    assert got == pytest.approx(value, abs=1e-7)
