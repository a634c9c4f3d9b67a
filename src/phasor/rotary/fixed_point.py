"""Frequencies as exact decimals, and as turns per position in fixed point: numbers, of which `phase` makes tensors."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from decimal import Context, Decimal, localcontext

TURN_BITS = 64
PRECISION = 50  # decimal digits of every exact frequency; 2**64 has 20, so steps are rounded once

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def exact() -> AbstractContextManager[Context]:
    """Decimal arithmetic with 50 digits, whatever context the caller has set."""
    return localcontext(Context(prec=PRECISION))


def steps(inv_freq: Iterable[Decimal]) -> tuple[int, ...]:
    """Frequencies in radians per position -> turns per position in 64-bit fixed point.

    ``step = round(inv_freq / 2 pi * 2**64)``, wrapped into the signed 64-bit range. Plain Python integers: no dtype,
    device or framework state can touch them. Rounding costs at most ``|position| * 2**-65`` turns of phase.

    Example: a quarter turn per position is 2**62.

    >>> steps([PI / 2]) == (2**62,)
    True
    """
    with exact():
        units = [int((f / (2 * PI) * 2**TURN_BITS).to_integral_value()) for f in inv_freq]
    half_turn = 1 << (TURN_BITS - 1)
    return tuple((u + half_turn) % (1 << TURN_BITS) - half_turn for u in units)
