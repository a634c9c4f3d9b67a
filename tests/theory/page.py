"""docs/theory.md as the tests see it: its equation numbers, its tables, its printed numbers; and complex arithmetic."""

import re
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import numpy as np
from mpmath import mp

mp.dps = 60

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parents[1] / "docs/theory.md").read_text(encoding="utf-8")

EPS = np.finfo(np.float64).eps
U = 2.0**-24  # the rounding unit of float32


def printed(literal: str, value: float) -> None:
    """The page shows `literal`, and it is `value` rounded to the digits shown."""
    assert re.search(rf"(?<![\w.]){re.escape(literal)}(?![\d]|\.\d)", PAGE), f"the page does not show {literal}"
    assert rounds_to(literal, value), f"the page shows {literal}, computed {value}"


def rounds_to(literal: str, value: float) -> bool:
    shown = Decimal(literal)
    unit = Decimal((0, (1,), shown.as_tuple().exponent))
    return Decimal(repr(float(value))).quantize(unit, ROUND_HALF_EVEN) == shown


def table(first_header: str) -> list[list[str]]:
    """The rows of the table on the page whose first column has this heading."""
    lines = PAGE.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows
    return rows


def ladder(base: float, dim: int) -> np.ndarray:
    """theta_i in float64, from mpmath: not the library's."""
    return np.array([float(mp.mpf(base) ** (-mp.mpf(2 * i) / dim)) for i in range(dim // 2)])


def turn(x: np.ndarray, position: float, theta: np.ndarray) -> np.ndarray:
    """Rotation of interleaved pairs by complex multiplication: independent of every real formula on the page."""
    z = (x[0::2] + 1j * x[1::2]) * np.exp(1j * position * theta)
    return np.stack((z.real, z.imag), -1).reshape(-1)


def close(a: object, b: object, scale: float = 1.0) -> bool:
    """Equal up to 64 roundings of float64 numbers of size `scale`."""
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) <= 64 * EPS * scale


def fresnel(distance: float) -> float:
    """|integral over [0, 1] of exp(i distance t^2)|, from Fresnel's integrals."""
    end = mp.sqrt(2 * mp.mpf(distance) / mp.pi)
    return float(mp.sqrt(mp.pi / (2 * mp.mpf(distance))) * mp.hypot(mp.fresnelc(end), mp.fresnels(end)))
