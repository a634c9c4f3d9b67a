"""Section 11 of docs/theory.md: phases as integers, with the error bounds that are derived there."""

import math
import random
import re

import numpy as np
import torch
from mpmath import mp, mpf

from phasor import RotarySpec, Rotation
from phasor.rotary.phase import cos_sin, phases
from phasor.rotary.spec import axis_steps

from .page import U, printed, rounds_to, table

SPEC = RotarySpec(head_dim=128, base=500_000.0)
EXACT = [mpf(500_000) ** (-mpf(i) / 64) for i in range(64)]
STEPS = axis_steps(SPEC)[0]
UNIT = 2 * mp.pi / 2**64
FUNCTION = 1 + 3 * math.pi / (4 * math.sqrt(2))  # (total): the second term in units of u


def some_positions() -> list[int]:
    draw = random.Random(0)
    return [0, 1, -1, 131_071, 2**31, -(2**31)] + [draw.randint(-(2**31), 2**31) for _ in range(30)]


def off_the_circle(a: mpf, b: mpf) -> mpf:
    """|a - b| modulo whole turns."""
    return abs(a - b - 2 * mp.pi * mp.nint((a - b) / (2 * mp.pi)))


def test_equation_42_integers_modulo_a_turn():
    positions = some_positions()
    got = phases(torch.tensor([positions]), torch.tensor([STEPS]))
    for i, theta in enumerate(EXACT):
        units = theta / (2 * mp.pi) * 2**64
        step = int(mp.nint(units))
        assert abs(units - step) <= 0.5
        for row, m in zip(got.tolist(), positions, strict=True):
            assert (row[i] - m * step) % 2**64 == 0  # Python's integers do not wrap


def test_equation_43_bound_on_the_phase():
    bound_used = mpf(0)
    for i, theta in enumerate(EXACT):
        for m in some_positions()[1:]:
            phase = int(phases(torch.tensor([[m]]), torch.tensor([[STEPS[i]]])))
            bound = 2 * mp.pi * mpf(2) ** -65 * abs(m)
            error = off_the_circle(phase * UNIT, m * theta)
            assert error <= bound
            bound_used = max(bound_used, error / bound)
    assert bound_used > 0.9  # the bound is attained but for a few percent: it could not be smaller
    printed("3.66e-10", 2 * mp.pi * mpf(2) ** -65 * 2**31)


def test_equation_44_quarter_turns_are_exact():
    """The same phase moved by whole quarter turns gives the same two numbers, swapped and negated, bit for bit."""
    rest = torch.tensor([0, 1, 2**40, 2**61 - 1, -(2**61) + 1, -(2**55)])
    for dtype in (torch.float32, torch.float64):
        c, s = cos_sin(rest, dtype)
        for h, (cos, sin) in enumerate(((c, s), (-s, c), (-c, -s), (s, -c))):
            got = cos_sin(rest + h * 2**62, dtype)
            assert torch.equal(got[0], cos)
            assert torch.equal(got[1], sin)
    # beside a quarter turn the small one of the two keeps its digits: the rest is measured from there
    for units in (1, 5, -7, 2**30):
        small = float(cos_sin(torch.tensor([2**62 - units]))[0])
        assert abs(small - mp.sin(UNIT * units)) <= 4 * U * abs(mp.sin(UNIT * units))
    # and the formula with R(pi/2)^h in complex numbers
    for phase in (2**62 + 5, -(2**63), 2**63 - 1, 3 * 2**60):
        h = round(phase / 2**62)
        value = mp.expj(UNIT * phase)
        assert abs(value - mpf(1) * (1j**h) * mp.expj(UNIT * (phase - h * 2**62))) < mpf(10) ** -50
        assert abs(phase - h * 2**62) <= 2**61


def test_equation_45_bound_on_cos_and_sin():
    """float32 against mpmath at every pair and at random phases; the largest error uses a good part of the bound."""
    printed("1.59e-7", FUNCTION * U)
    printed("0.5554", math.pi / (4 * math.sqrt(2)))
    promised = float(re.search(r"right to (\S+) for every", Rotation.at.__doc__)[1])
    printed("2.5e-7", promised)
    printed("2.5", promised / U - FUNCTION + 1)
    printed("1738", FUNCTION * 2.0**-53 / (2 * math.pi * 2.0**-65))
    x = np.linspace(0, math.pi / 4, 1001)
    assert max((x * np.sin(x)).max(), (x * np.cos(x)).max()) <= math.pi / (4 * math.sqrt(2)) * (1 + 1e-15)
    positions = some_positions()
    rotation = Rotation.at(SPEC, torch.tensor(positions))
    worst = 0.0
    for t, m in enumerate(positions):
        for i in range(0, 64, 3):
            bound = float(2 * mp.pi * mpf(2) ** -65 * abs(m)) + FUNCTION * U * (1 + 1e-6)
            for got, exact in ((rotation.cos, mp.cos(m * EXACT[i])), (rotation.sin, mp.sin(m * EXACT[i]))):
                error = abs(float(got[t, i]) - exact)
                assert error <= bound
                worst = max(worst, float(error / bound))
    assert worst > 0.25


def correctly_rounded_angles(positions: np.ndarray) -> np.ndarray:
    """float32(m) * float32(theta), each rounded once, as float64 numbers."""
    theta = np.array([np.float32(float(t)) for t in EXACT])
    return (positions.astype(np.float32)[:, None] * theta).astype(np.float64)


def exact_turned(positions: np.ndarray) -> np.ndarray:
    """m theta modulo one turn in float64, reduced with 60 digits."""
    reduced = [[float(mp.fmod(int(m) * t, 2 * mp.pi)) for t in EXACT] for m in positions]
    return np.array(reduced)


def test_equation_46_error_grows_with_the_position():
    for m in (1000, 131_071, 2**24 - 1):
        angle = correctly_rounded_angles(np.array([m]))[0]
        for i, theta in enumerate(EXACT):
            assert abs(mpf(angle[i]) - m * theta) <= (2 * U + U * U) * m * theta
        relative = max(abs(mpf(angle[i]) - m * t) / (m * t) for i, t in enumerate(EXACT))
        assert relative > U  # more than a single rounding


def test_table_of_float32_angles():
    for end, literal in table(r"$N$"):
        positions = np.arange(int(end) - 512, int(end))
        exact, angle = exact_turned(positions), correctly_rounded_angles(positions)
        error = max(np.abs(np.cos(angle) - np.cos(exact)).max(), np.abs(np.sin(angle) - np.sin(exact)).max())
        assert rounds_to(literal, error), (end, error)
        # what a float32 spec gives lies close by: its frequencies are rounded up to three times
        spec = SPEC.replace(angles="float32", tables="float32")
        used = Rotation.at(spec, torch.from_numpy(positions))
        shipped = float((used.cos.double() - torch.from_numpy(np.cos(exact))).abs().max())
        assert 0.5 < shipped / error < 3
        phasor = Rotation.at(SPEC, torch.from_numpy(positions)).cos.double() - torch.from_numpy(np.cos(exact))
        assert phasor.abs().max() < 2.5e-7


def test_equation_47_shifts_change_nothing():
    step = torch.tensor([STEPS])
    for m, n, t in ((9, 2, 2**31), (131_072, 0, -(2**40)), (-5, 7, 2**55 + 1)):
        moved = phases(torch.tensor([[m + t]]), step) - phases(torch.tensor([[n + t]]), step)
        assert torch.equal(moved, phases(torch.tensor([[m - n]]), step))
    # float32 angles: the difference of two angles at distance 7 depends on where it is taken
    here, there = (correctly_rounded_angles(np.array([p + 7, p])) for p in (0, 2**20))
    assert np.abs((here[0] - here[1]) - (there[0] - there[1])).max() > 1e-2
