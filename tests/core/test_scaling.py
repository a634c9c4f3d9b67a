"""Scaling schemes: numbers printed in papers and released code, limits, and transformers' own functions to the bit."""

import math
from decimal import Decimal

import pytest
import torch

from phasor import RotarySpec
from phasor.rotary.scaling import (
    NTK,
    SCALINGS,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKFixed,
    Proportional,
    SteppedNTK,
    YaRN,
    YaRNPaper,
)

EPS = torch.finfo(torch.float64).eps  # two values that were each rounded once


def plain(dim=128, base=10_000.0):
    return RotarySpec(head_dim=dim, base=base).inv_freq()


def scaled(scaling, seq_len=None, dim=128, base=10_000.0, **more):
    return RotarySpec(head_dim=dim, base=base, scaling=scaling, **more).inv_freq(seq_len)


# --- published numbers ----------------------------------------------------------------------------------------------


def test_plain_ladder():
    """RoFormer: 10000^(-2i/8) is 1, 0.1, 0.01, 0.001."""
    assert plain(8).tolist() == [1.0, 0.1, 0.01, 0.001]
    assert plain(2).tolist() == [1.0]


@pytest.mark.parametrize("seq_len", [None, 1, 4096])
def test_dynamic_ntk_inside_the_trained_length(seq_len):
    assert torch.equal(scaled(DynamicNTK(factor=4.0, original_max_position=4096), seq_len), plain())


def test_dynamic_ntk_is_continuous_and_grows():
    scaling = DynamicNTK(factor=2.0, original_max_position=4096)
    factors = [scaling.factor_at(n) for n in (4096, 4097, 5000, 8192, 16384)]
    assert factors == [1, 1 + Decimal(2) / 4096, Decimal(2) * 5000 / 4096 - 1, 3, 7]


@pytest.mark.parametrize(
    "seq_len, factor",
    [(None, 1), (1, 1), (2048, 1), (2049, 3), (4096, 3), (4097, 7), (8192, 7), (8193, 15), (16384, 15), (32768, 31)],
)
def test_stepped_ntk_factors(seq_len, factor):
    """Qwen-7B, get_ntk_alpha: max(2^ceil(log2(n / 2048) + 1) - 1, 1)."""
    scaling = SteppedNTK(original_max_position=2048)
    assert scaling.factor_at(seq_len) == factor
    assert torch.equal(scaled(scaling, seq_len), scaled(NTK(float(factor))))


LLAMA31 = {  # Meta's apply_scaling for base 5e5, 128 channels, factor 8, 1, 4, 8192, printed in float32
    28: 3.21144611e-03,
    29: 2.16657063e-03,
    30: 1.37189368e-03,
    31: 8.5675146e-04,
    32: 5.24846022e-04,
    33: 3.1269365e-04,
    34: 1.78507791e-04,
    35: 9.55621217e-05,
    63: 3.06892588e-07,
}


def test_llama31_table():
    scaling = Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192)
    got, theta = scaled(scaling, base=500_000.0), plain(base=500_000.0)
    single = scaled(scaling, base=500_000.0, angles="float32")
    for pair, value in LLAMA31.items():
        assert single[pair].item() == pytest.approx(value, rel=2e-9)  # nine printed digits
        assert got[pair].item() == pytest.approx(value, rel=2e-6)  # base ** e in float32 is off by ln(base) / 2 * eps
    assert torch.equal(got[:29], theta[:29])
    torch.testing.assert_close(got[35:], theta[35:] / 8, rtol=EPS, atol=0)
    assert ((got < theta) & (got > theta / 8))[29:35].all()
    assert (got.diff() < 0).all()


def test_llama32_divides_by_32():
    """Llama 3.2: the same bounds, factor 32."""
    scaling = Llama3(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192)
    got, theta = scaled(scaling, dim=64, base=500_000.0), plain(64, 500_000.0)
    assert got[0] == theta[0]
    assert got[-1].item() == pytest.approx(theta[-1].item() / 32, rel=1e-15)


def test_llama3_without_a_blend():
    """Llama 4 Scout: low = high = 1: a step at one turn."""
    scaling = Llama3(factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position=8192)
    for angles in ("exact", "float32"):
        ratio = scaled(scaling, base=500_000.0, angles=angles) / plain(base=500_000.0)
        turns = 8192 * plain(base=500_000.0) / (2 * math.pi)
        expected = torch.where(turns < 1, 1 / 16, 1.0).double()
        torch.testing.assert_close(ratio, expected, rtol=3e-6, atol=0)


def test_longrope_attention_factor_that_is_stated():
    plain_fields = {"short_factor": (1.0,), "long_factor": (1.0,), "original_max_position": 4096}
    assert LongRoPE(**plain_fields, factor=1.0).attention_factor() == 1.0
    assert LongRoPE(**plain_fields, factor=0.5).attention_factor() == 1.0
    stated = LongRoPE(**plain_fields, factor=32.0, attention=1.243163121016122)  # Phi-3.5-MoE long_mscale
    assert stated.attention_factor() == stated.attention_factor(9999) == 1.243163121016122
    two = LongRoPE(**plain_fields, factor=32.0, attention=1.3, attention_short=1.1)
    assert [two.attention_factor(n) for n in (None, 4096, 4097)] == [1.1, 1.1, 1.3]


def test_longrope_switches_after_the_trained_length():
    scaling = LongRoPE(short_factor=(1.0, 2.0), long_factor=(4.0, 32.0), original_max_position=4096, factor=32.0)
    for seq_len, divisors in ((None, (1, 2)), (1, (1, 2)), (4096, (1, 2)), (4097, (4, 32)), (10**6, (4, 32))):
        got = scaled(scaling, seq_len, dim=4)
        assert got.tolist() == pytest.approx([1 / divisors[0], 0.01 / divisors[1]], rel=1e-15)


@pytest.mark.parametrize(
    "fraction, dim, turning",
    [
        (0.25, 512, 64),  # Gemma 4's full-attention layers
        (0.5, 8, 2),
        (1.0, 16, 8),
        (0.3, 16, 2),  # 2.4, cut
        (0.35, 16, 2),  # 2.8, cut and not rounded
    ],
)
def test_proportional_counts(fraction, dim, turning):
    """int(fraction * dim / 2) pairs on the full ladder (exponent over the whole dim), the rest stand still."""
    for angles in ("exact", "float32"):
        got = scaled(Proportional(fraction=fraction), dim=dim, base=1e6, angles=angles)
        assert torch.count_nonzero(got) == turning
        torch.testing.assert_close(got[:turning], plain(dim, 1e6)[:turning], rtol=3e-7, atol=0)


def test_proportional_of_gemma():
    """p = 0.25, 512 channels, base 1e6: the slowest pair that turns has 0.0334; partial rotary would have 1.24e-6."""
    got = scaled(Proportional(fraction=0.25), dim=512, base=1e6)
    assert got[63].item() == pytest.approx(0.0334, abs=5e-5)
    assert plain(128, 1e6)[-1].item() == pytest.approx(1.24e-6, rel=5e-3)
    halved = scaled(Proportional(fraction=0.25, factor=8.0), dim=512, base=1e6)
    torch.testing.assert_close(halved, got / 8, rtol=EPS, atol=0)


# --- limits that hold for all ---------------------------------------------------------------------------------------

IDENTITY = [
    Linear(1.0),
    NTK(1.0),
    NTKFixed(1.0),
    DynamicNTK(factor=1.0, original_max_position=512),
    YaRN(factor=1.0, original_max_position=512),
    YaRNPaper(factor=1.0, original_max_position=512),
    LongRoPE(short_factor=(1.0,) * 32, long_factor=(1.0,) * 32, original_max_position=512, factor=1.0),
    Llama3(factor=1.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=512),
    Proportional(fraction=1.0),
]


@pytest.mark.parametrize("scaling", IDENTITY, ids=lambda s: s.name)
def test_factor_one_is_no_scaling(scaling):
    """In exact arithmetic to the last bit but one (a blend x w + x (1 - w) may round), and no attention factor."""
    for seq_len in (None, 512):
        spec = RotarySpec(head_dim=64, scaling=scaling)
        torch.testing.assert_close(spec.inv_freq(seq_len), plain(64), rtol=EPS, atol=0)
        assert spec.attention_factor(seq_len) == 1.0
    if not isinstance(scaling, DynamicNTK):  # whose factor at L is L / L0 then: the limit holds inside only
        torch.testing.assert_close(RotarySpec(head_dim=64, scaling=scaling).inv_freq(5000), plain(64), rtol=EPS, atol=0)


def test_the_registry_is_complete():
    assert set(SCALINGS) == {
        "linear",
        "ntk",
        "ntk_fixed",
        "dynamic",
        "stepped_ntk",
        "yarn",
        "yarn_paper",
        "longrope",
        "llama3",
        "proportional",
        "at_length",
    }
    assert [n for n, s in SCALINGS.items() if s.length_dependent] == ["dynamic", "stepped_ntk", "longrope"]
    assert all(scheme.name == name for name, scheme in SCALINGS.items())
