"""docs/theory.md: every decimal number on it is what phasor gives, or a formula beside it here; its numbering is whole.

The laws behind its equations are those of `core/test_algebra.py`, `core/test_precision.py`, `core/test_scaling*.py` and
`encodings/`.
"""

import math
import re
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.rotary.phase import phases
from phasor.rotary.scaling import NTK, DynamicNTK, LongRoPE, Proportional, YaRN, YaRNPaper
from phasor.rotary.spec import axis_steps
from phasor.tools.inspect.curves import decay, decay_bound, first_negative

PAGE = (Path(__file__).parents[1] / "docs/theory.md").read_text(encoding="utf-8")
MATH = re.compile(r"```math\n.*?```", re.DOTALL)
SPEC = RotarySpec(head_dim=128)
U = 2.0**-24  # the rounding unit of float32
FUNCTION = 1 + 3 * math.pi / (4 * math.sqrt(2))  # the second term of (45), in units of U


def ladder(base: float = 10_000.0, dim: int = 128) -> np.ndarray:
    """theta_i in float64, from mpmath: not the library's."""
    return np.array([float(mpf(base) ** (-mpf(2 * i) / dim)) for i in range(dim // 2)])


def mean_cosine(distances: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return np.cos(np.multiply.outer(distances, theta)).mean(-1)


def scaled(scaling: object, base: float = 10_000.0, seq_len: int | None = None) -> np.ndarray:
    return RotarySpec(head_dim=128, base=base, scaling=scaling).inv_freq(seq_len).numpy()


def integral(distance: float, base: float = 10_000.0) -> mpf:
    return (mp.ci(distance) - mp.ci(mpf(distance) / mpf(base))) / mp.log(base)


def fresnel(distance: float) -> float:
    """|integral over [0, 1] of exp(i distance t^2)|, from Fresnel's integrals."""
    end = mp.sqrt(2 * mpf(distance) / mp.pi)
    return float(mp.sqrt(mp.pi / (2 * mpf(distance))) * mp.hypot(mp.fresnelc(end), mp.fresnels(end)))


def rounds_to(literal: str, value: float) -> bool:
    """Whether ``value``, rounded to the digits shown, is the literal."""
    unit = Decimal((0, (1,), Decimal(literal).as_tuple().exponent))
    return Decimal(repr(float(value))).quantize(unit, ROUND_HALF_EVEN) == Decimal(literal)


def table(first_header: str) -> list[list[str]]:
    """The rows of the table on the page whose first column has this heading."""
    rows = PAGE.partition(f"\n| {first_header} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


# --- the numbers in the text ----------------------------------------------------------------------------------------


def of_frequencies() -> Iterator[tuple[str, float]]:
    theta, wide = SPEC.inv_freq().numpy(), RotarySpec(head_dim=512, base=1e6)
    yield "6.283", 2 * math.pi / theta[0]
    yield "54410", 2 * math.pi / theta[-1]
    turning = int((4096 * theta / (2 * math.pi) > 1).sum())
    yield from [("46", turning), ("18", 64 - turning), ("92", 2 * turning), ("6", int((1 / theta > 4096).sum()))]
    yield "0.0334", wide.replace(scaling=Proportional(fraction=0.25)).inv_freq()[63]
    yield "1.24e-6", wide.replace(rotary_dim=128).inv_freq()[-1]
    yield "1.8e-4", RotarySpec(head_dim=128, rotary_dim=32).inv_freq()[-1]
    yield "0.1155", theta[15]
    yield from zip(("0.01", "0.001"), RotarySpec(head_dim=8).inv_freq()[2:].tolist(), strict=True)


def of_decay() -> Iterator[tuple[str, float]]:
    yield "0.6165", mp.findroot(mp.ci, 0.6)
    with mp.workdps(15):
        yield "6167", next(d for d in range(5600, 10_000) if integral(d) < 0)
    yield "0.0884", 128**-0.5
    for shown, low, high in (("0.515", 10, 100), ("0.273", 100, 1000), ("0.091", 1000, 10**4), ("0.083", 10**4, 10**5)):
        yield shown, np.sqrt((mean_cosine(np.arange(low, high), ladder()) ** 2).mean())
    yield "21.8", math.pi * 64 / math.log(10_000)
    bound = decay_bound(SPEC, torch.arange(257))
    yield "115", int((bound.diff() > 0).sum())
    for base, distance in ((1e4, 1707), (5e5, 18438), (1e6, 27115)):  # 1707 is also in print
        yield str(distance), first_negative(RotarySpec(head_dim=128, base=base), None, distance + 1)
    yield "4079", int((mean_cosine(np.arange(4096), ladder(27_000.0)) < 0).argmax())
    assert mean_cosine(np.arange(4096), ladder(26_952.35)).min() >= 0
    yield "26952.34", 26_952.34
    yield from zip(("0.956", "0.297", "0.084", "0.028", "0.0089"), (fresnel(10**n) for n in range(5)), strict=True)
    flat = np.minimum((np.arange(1_000_000) + 0.5) / 1_000_000, 0.5)
    yield "0.5", abs(np.exp(1j * 10_000 * flat).mean())


def of_scalings() -> Iterator[tuple[str, float]]:
    """The base of a ladder is read off its first two pairs."""
    for shown, s in (("20221.26", 2.0), ("40889.94", 4.0), ("82684.62", 8.0), ("167198.74", 16.0)):
        yield shown, float(np.divide(*scaled(NTK(s))[:2])) ** 64
    dynamic = scaled(DynamicNTK(factor=2.0, original_max_position=4096), seq_len=8192)
    yield "30527.74", (dynamic[0] / dynamic[1]) ** 64
    plain = ladder()
    shipped, paper = (scaled(kind(factor=16.0, original_max_position=4096)) for kind in (YaRN, YaRNPaper))
    ends = np.interp(-np.log([32.0, 1.0]), -np.log(4096 * plain / (2 * math.pi)), np.arange(64))
    yield from [("20.9445", ends[0]), ("45.0269", ends[1]), ("20", math.floor(ends[0])), ("46", math.ceil(ends[1]))]
    yield from [("3.0", (shipped / paper).max()), ("38", int((shipped / paper).argmax()))]
    kept = [(ladder_of[38] / plain[38] - 1 / 16) / (1 - 1 / 16) for ladder_of in (shipped, paper)]
    yield from zip(("0.308", "0.056"), kept, strict=True)
    for shown, s in (("1.138629", 4.0), ("1.277259", 16.0), ("1.368888", 40.0)):
        yield shown, YaRN(factor=s, original_max_position=4096).attention_factor()
    long = LongRoPE((1.0, 2.0), (4.0, 32.0), original_max_position=4096, factor=32.0)
    yield "1.19023807", long.attention_factor()


def of_phases() -> Iterator[tuple[str, float]]:
    yield "3.66e-10", 2 * math.pi * 2.0**-65 * 2**31
    yield "1.59e-7", FUNCTION * U
    yield "0.5554", math.pi / (4 * math.sqrt(2))
    promised = float(re.search(r"right to (\S+) for every", Rotation.at.__doc__)[1])
    yield from [("2.5e-7", promised), ("2.5", promised / U - FUNCTION + 1)]
    yield "1738", FUNCTION * 2.0**-53 / (2 * math.pi * 2.0**-65)


def of_mistakes() -> Iterator[tuple[str, float]]:
    """The small example: theta = 1, q = (1, 2), k = (3, -1), m = 3, n = 2."""
    rows = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64).view(1, 1, 2, 2)
    q, k = apply_rotary(rows, Rotation.at(RotarySpec(head_dim=2), torch.tensor([3, 2]), dtype=torch.float64))[0, 0]
    yield "-5.3500", float(q @ k)
    yield "-1.5058", ((1 + 2j) * (3 - 1j) * np.exp(1j)).real
    c, s = math.cos(1), math.sin(1)
    yield "6.4306", np.array([1.0, 2.0]) @ np.array([[c, -s], [s, c]]) @ np.array([3.0, -1.0])
    yield from [("0.7651", math.sin(2) * math.sin(1)), ("0.1283", math.sin(3) * math.sin(2))]
    spec = RotarySpec(head_dim=4, scaling=YaRN(factor=16.0, original_max_position=4096))
    x = torch.randn(1, 1, 1, 4, dtype=torch.float64)
    y = apply_rotary(x, Rotation.at(spec, torch.tensor([7]), dtype=torch.float64))
    yield "1.631390", (y * y).sum() / (x * x).sum()


PARTS = [of_frequencies, of_decay, of_scalings, of_phases, of_mistakes]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_numbers_in_the_text(part):
    for literal, value in part():
        assert re.search(rf"(?<![\w.]){re.escape(literal)}(?![\d]|\.\d)", PAGE), f"the page does not show {literal}"
        assert rounds_to(literal, value), f"the page shows {literal}, computed {value}"


def test_every_decimal_number_is_computed():
    text = re.sub(
        r"arXiv:\d{4}\.\d{5}|\d\.\d\.\d|[Ss]ections? \d\.\d|Llama 3\.1|^\|.*", "", MATH.sub("", PAGE), flags=re.M
    )
    shown = set(re.findall(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?", text))
    assert shown and shown <= {literal for part in PARTS for literal, _ in part()}
    assert len(re.findall(r"^\|[-|]+$", PAGE, re.MULTILINE)) == 5  # one of words, one of mistakes, and those below


# --- its tables -----------------------------------------------------------------------------------------------------


def test_table_of_decay():
    for distance, curve, cosine, smooth in table(r"$\Delta$"):
        at = torch.tensor(int(distance))
        assert rounds_to(curve, decay_bound(SPEC, at)), distance
        assert rounds_to(cosine, decay(SPEC, at)), distance
        assert rounds_to(smooth, integral(int(distance))), distance


def test_decay_of_papers():
    """RoFormer, fig. 2, after the source in kexue.fm 8265; the minimum of arXiv:2306.15595, fig. 5."""
    published = {0: 32.5, 1: 31.5382, 2: 28.9560, 8: 19.8174, 32: 13.3843, 128: 9.2729}
    assert decay_bound(SPEC, torch.tensor([*published])).tolist() == pytest.approx([*published.values()], abs=6e-5)
    half = decay_bound(SPEC, torch.arange(4096)) / 2
    assert half.argmin() == 3643 and half.min().item() == pytest.approx(1.1159, abs=6e-5)


def test_table_of_bases():
    """At the printed base, up to its last digit, the condition holds; one part in a thousand below it fails."""
    rows = table(r"$L$")
    for length, base, su, paper in rows:
        digit = 10.0 ** -len(base.partition(".")[2])
        for factor, holds in ((float(base) + digit, True), (float(base) * 0.999, False)):
            theta = factor ** (-np.arange(64) / 64)
            parts = np.array_split(np.arange(int(length)), 64)
            assert (min(mean_cosine(part, theta).min() for part in parts) >= 0) is np.bool_(holds), (length, factor)
        assert float(su) == float(f"{float(base):.1e}") and float(paper) >= float(su)
    assert sum(float(paper) > float(su) for _, _, su, paper in rows) == 4


BASE_5E5 = RotarySpec(head_dim=128, base=500_000.0)
EXACT = [mpf(500_000) ** (-mpf(i) / 64) for i in range(64)]


def test_table_of_float32_angles():
    """Frequencies and positions in float32, rounded once each, and their product, against 60 digits."""
    theta = np.array([np.float32(float(t)) for t in EXACT])
    for end, literal in table(r"$N$"):
        positions = np.arange(int(end) - 512, int(end))
        with mp.workdps(60):
            exact = np.array([[float(mp.fmod(int(m) * t, 2 * mp.pi)) for t in EXACT] for m in positions])
        angle = (positions.astype(np.float32)[:, None] * theta).astype(np.float64)
        error = max(np.abs(np.cos(angle) - np.cos(exact)).max(), np.abs(np.sin(angle) - np.sin(exact)).max())
        assert rounds_to(literal, error), (end, error)
        ours = Rotation.at(BASE_5E5, torch.from_numpy(positions)).cos.double() - torch.from_numpy(np.cos(exact))
        assert ours.abs().max() < 2.5e-7


def test_the_bound_on_the_phase():
    """(43) holds, and is attained but for a few percent: it could not be smaller."""
    used = mpf(0)
    with mp.workdps(60):
        for step, t in zip(axis_steps(BASE_5E5)[0], [mpf(500_000) ** (-mpf(i) / 64) for i in range(64)], strict=True):
            for m in (1, 131_071, 2**31, -(2**31) + 1):
                turns = int(phases(torch.tensor([[m]]), torch.tensor([[step]]))) / mpf(2) ** 64 - m * t / (2 * mp.pi)
                used = max(used, abs(turns - mp.nint(turns)) / (mpf(2) ** -65 * abs(m)))
    assert 0.9 < used <= 1


# --- its numbering --------------------------------------------------------------------------------------------------


def test_equations_and_links():
    tags = [int(n) for n in re.findall(r"\\tag\{(\d+)\}", PAGE)]
    assert tags == list(range(1, len(tags) + 1)) and len(MATH.findall(PAGE)) == len(tags)
    assert max(int(n) for n in re.findall(r"(?<![\w)$])\((\d+)\)", MATH.sub("", PAGE))) <= len(tags)
