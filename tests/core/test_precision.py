"""Angles are right at every position: cos and sin against 60-digit mpmath, and nothing around a call harms them."""

import decimal
import random
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.rotary.fixed_point import PI, steps
from phasor.rotary.phase import cos_sin, phases
from phasor.rotary.scaling import Linear, YaRN
from phasor.rotary.spec import axis_steps, exact_frequencies

from . import papers
from .conftest import SCHEMES, SEQ_LEN, SPECS, anywhere, at, without_native

FAR = 2**31
EXTREMES = [0, 1, -1, 2, 131_071, 2**24 + 1, -(2**24) - 1, FAR - 1, FAR, 1 - FAR, -FAR]
FLOAT32_BUDGET = 2.5e-7  # promised by Rotation.at: rest of 1/8 turn rounded (5e-8), its product (5e-8), cos itself


def position_list(spec, count, seed=0):
    """`count` random positions after the extremes, each a list with one number per axis."""
    draw = random.Random(seed)
    axes = spec.axes.count
    positions = [[value] * axes for value in EXTREMES]
    return positions + [[draw.randint(-FAR, FAR) for _ in range(axes)] for _ in range(count)]


def as_tensor(spec, positions):
    table = torch.tensor(positions).T
    return table[0] if spec.axes.count == 1 else table


def reference(spec, positions):
    """cos and sin with the attention factor, float64 ``[S, P]``, from mpmath."""
    factor = papers.attention_factor(spec.scaling)
    table = [papers.angles(spec, p, SEQ_LEN) for p in positions]
    cos, sin = ([[float(factor * f(a)) for a in row] for row in table] for f in (mp.cos, mp.sin))
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)


def check_against_mpmath(spec, positions):
    cos, sin = reference(spec, positions)
    factor = spec.attention_factor(SEQ_LEN)
    single, double = (at(spec, as_tensor(spec, positions), d) for d in (torch.float32, torch.float64))
    assert single.cos.dtype == torch.float32
    assert double.cos.dtype == torch.float64
    # each step is rounded by at most 2**-65 turns; a factor is one more rounding of the product
    reach = max(1, max(abs(x) for p in positions for x in p))
    phase_error = spec.axes.count * reach * 2.0**-65 * 2 * torch.pi
    rounded = 2 * torch.finfo(torch.float32).eps * (factor != 1)
    for got, expected in ((single.cos, cos), (single.sin, sin)):
        assert (got.double() - expected).abs().max() <= (FLOAT32_BUDGET + rounded) * factor
    for got, expected in ((double.cos, cos), (double.sin, sin)):
        assert (got - expected).abs().max() <= (phase_error + 4 * 2**-52) * factor


def test_every_scheme_against_mpmath(scheme):
    check_against_mpmath(scheme, position_list(scheme, 12))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(base=st.floats(1.5, 1e9), half=st.integers(1, 24), position=st.integers(-FAR, FAR))
def test_any_base_and_position_against_mpmath(base, half, position):
    check_against_mpmath(RotarySpec(head_dim=2 * half, base=base), [[position]])


def test_frequencies_are_rounded_once(scheme):
    """`inv_freq` is the float64 nearest to the paper's value."""
    expected = torch.tensor([float(f) for f in papers.frequencies(scheme, SEQ_LEN)], dtype=torch.float64)
    assert torch.equal(scheme.inv_freq(SEQ_LEN), expected)


def test_steps_are_correctly_rounded(scheme):
    """step = round(turns per position * 2**64), modulo a turn, to the unit."""
    theta, shares = papers.frequencies(scheme, SEQ_LEN), papers.shares(scheme)
    for row, share in zip(axis_steps(scheme, SEQ_LEN), shares, strict=True):
        for step, f, w in zip(row, theta, share, strict=True):
            expected = int(mp.nint(f * w / (2 * mp.pi) * 2**64))
            assert (step - expected) % 2**64 == 0
            assert -(2**63) <= step < 2**63


# --- the three functions of phase.py on their own -------------------------------------------------------------------


def test_steps_of_simple_turns():
    assert steps([2 * PI, PI / 2, -PI / 2, PI, PI * 0]) == (0, 2**62, -(2**62), -(2**63), 0)
    assert steps([PI / 2**63]) == (1,)
    assert steps([2 * PI * 5 + PI / 4]) == (2**61,)


def test_quarter_turns_are_exact():
    quarter = torch.tensor([0, 1, 2, 3, -1, -2, -3, -4]) * 2**62
    for dtype in (torch.float32, torch.float64):
        cos, sin = cos_sin(quarter, dtype)
        assert cos.tolist() == [1, 0, -1, 0, 0, -1, 0, 1]
        assert sin.tolist() == [0, 1, 0, -1, -1, 0, 1, 0]
        assert not cos.signbit()[cos == 0].any()
        assert not sin.signbit()[sin == 0].any()


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_cos_sin_of_any_phase(phase):
    angle = 2 * mp.pi * phase / 2**64
    for dtype, bound in ((torch.float32, FLOAT32_BUDGET), (torch.float64, 4 * 2**-52)):
        cos, sin = cos_sin(torch.tensor([phase]), dtype)
        assert abs(cos.item() - mp.cos(angle)) <= bound
        assert abs(sin.item() - mp.sin(angle)) <= bound


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=3))
def test_phases_wrap_like_integers(terms):
    """Against Python's unbounded integers."""
    positions = torch.tensor([[p] for p, _ in terms])
    step = torch.tensor([[s] for _, s in terms])
    expected = (sum(p * s for p, s in terms) + 2**63) % 2**64 - 2**63
    assert phases(positions, step).tolist() == [[expected]]


# --- half precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("start", [0, 2**20, FAR - 4096, -FAR])
@pytest.mark.parametrize("block", [None, 2**15, 2**40])  # native, or eager
@pytest.mark.parametrize("interleaved", [False, True])  # at once, halves turn in whole rows, interleaved by reference
def test_half_precision_costs_one_rounding(dtype, start, block, interleaved, monkeypatch):
    """Compute wide, round once: almost every element is the correctly rounded exact answer, in every kernel."""
    if block is not None:
        without_native(monkeypatch)
        monkeypatch.setattr("phasor.rotary.kernels.eager.BLOCK", block)
    scaling = YaRN(factor=4.0, original_max_position=4096)
    spec = RotarySpec(head_dim=64, base=500_000.0, interleaved=interleaved, scaling=scaling)
    x, positions = torch.randn(1, 1, 4096, 64).to(dtype), torch.arange(start, start + 4096)
    exact = apply_rotary(x.double(), Rotation.at(spec, positions, dtype=torch.float64)).to(dtype)
    got = apply_rotary(x, Rotation.at(spec, positions, dtype=dtype))
    assert got.dtype == dtype
    assert (got == exact).double().mean() > 0.999
    # where the exact value lies on the edge between two, the other one: next to it in the integer order of the bits
    apart = (got.view(torch.int16).int() - exact.view(torch.int16).int()).abs()
    near_zero = exact.abs() < 1e-3
    assert apart[~near_zero].max() <= 1


# --- what frameworks do around it -----------------------------------------------------------------------------------


def equal(a, b):
    return torch.equal(a.cos, b.cos) and torch.equal(a.sin, b.sin)


@pytest.mark.parametrize("angles", ["exact", "float32"])
@pytest.mark.parametrize("name", SCHEMES, ids=str)
def test_meta_device_and_default_dtype_change_nothing(name, angles):
    """A fresh spec, so that nothing computed earlier can hide a failure."""
    spec = SPECS[name]
    positions, expected = anywhere(spec, 0, 10_000), None
    before = at(spec.replace(angles=angles), positions, torch.float32)
    axis_steps.cache_clear()
    with torch.device("meta"):
        expected = at(spec.replace(angles=angles), positions, torch.float32)
        assert spec.replace(angles=angles).inv_freq(SEQ_LEN).device.type == "cpu"
    assert expected.cos.device.type == "cpu"
    assert equal(before, expected)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        axis_steps.cache_clear()
        old = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            got = at(spec.replace(angles=angles), positions, torch.float32)
        finally:
            torch.set_default_dtype(old)
        assert equal(before, got), dtype


@pytest.mark.parametrize("angles", ["exact", "float32"])
def test_autocast_changes_nothing(few, angles):
    spec, positions = few.replace(angles=angles), anywhere(few, 0, 2**20)
    before = at(spec, positions, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        after = at(spec, positions, torch.float32)
    assert equal(before, after)


@pytest.mark.parametrize("bits", [32, 40, 48, 53, 62])
def test_far_beyond_the_error_is_what_the_docstring_says(bits):
    """Its bound per position and axis holds, and is not generous: the worst of some thousand angles comes near it."""
    per_position = float(re.search(r"``\|position\| \* (\S+)`` rad", Rotation.at.__doc__)[1])
    spec = RotarySpec(head_dim=128, base=500_000.0)
    draw = random.Random(bits)
    positions = [2**bits, -(2**bits), *(draw.randint(2 ** (bits - 1), 2**bits) for _ in range(6))]
    with mp.workdps(60):
        cos, sin = reference(spec, [[p] for p in positions])
    got = Rotation.at(spec, torch.tensor(positions), dtype=torch.float64)
    far = torch.tensor(positions, dtype=torch.float64).abs().unsqueeze(-1)
    error = torch.hypot(got.cos - cos, got.sin - sin)  # the chord, at most the angle
    assert (error <= far * per_position + 1e-15).all()
    assert error.max() > far.max() * per_position / 4


def test_unsigned_positions_of_64_bits_are_refused():
    """2**63 + 5 would be a negative number in int64, in silence."""
    with pytest.raises(ValueError, match=r"positions must be integers of at most 63 bits, got torch.uint64"):
        Rotation.at(RotarySpec(head_dim=16), torch.tensor([2**63 + 5], dtype=torch.uint64))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_narrow_integer_positions_are_widened_first(dtype):
    spec = RotarySpec(head_dim=16)
    positions = torch.tensor([0, 1, 100, 127])
    assert equal(Rotation.at(spec, positions.to(dtype)), Rotation.at(spec, positions))


def test_the_callers_decimal_context_does_not_matter():
    """A program that traps inexact decimals, or works with 5 digits, gets the same steps."""
    expected = axis_steps.__wrapped__(RotarySpec(head_dim=8, base=3.0, scaling=Linear(3.0)))
    with decimal.localcontext(decimal.Context(prec=5, rounding=decimal.ROUND_UP, traps=[decimal.Inexact])):
        exact_frequencies.cache_clear()
        assert axis_steps.__wrapped__(RotarySpec(head_dim=8, base=3.0, scaling=Linear(3.0))) == expected
