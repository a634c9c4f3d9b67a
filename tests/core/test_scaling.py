"""Scaling schemes: numbers printed in papers and released code, limits, and transformers' own functions to the bit."""

from decimal import Decimal

import pytest
import torch

from phasor import RotarySpec
from phasor.rotary.scaling import NTK, DynamicNTK, Llama3, LongRoPE, Proportional, SteppedNTK

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


def test_longrope_attention_factor_that_is_stated():
    plain_fields = {"short_factor": (1.0,), "long_factor": (1.0,), "original_max_position": 4096}
    assert LongRoPE(**plain_fields, factor=1.0).attention_factor() == 1.0
    assert LongRoPE(**plain_fields, factor=0.5).attention_factor() == 1.0
    stated = LongRoPE(**plain_fields, factor=32.0, attention=1.243163121016122)  # Phi-3.5-MoE long_mscale
    assert stated.attention_factor() == stated.attention_factor(9999) == 1.243163121016122
    two = LongRoPE(**plain_fields, factor=32.0, attention=1.3, attention_short=1.1)
    assert [two.attention_factor(n) for n in (None, 4096, 4097)] == [1.1, 1.1, 1.3]


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
