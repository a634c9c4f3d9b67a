"""Numbers solved from frequencies: bases, factors, and when a solved number is a stated or a short one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

from ...rotary.scaling import Scaling
from .config_numbers import Numbers, is_number
from .sight import TOLERANCE, Sight

SOLVED = 1e-5  # and so far apart a number solved from them and the number itself


_DIGITS = 3  # significant digits of a base or factor that no config states


Bases = list[tuple[float, int | None]]  # with the divisor of the exponent where it is not the width


def bases_of(sight: Sight, config: Numbers, fall: float, tolerance: float = SOLVED) -> Bases:
    """Bases whose ladder falls by the exponent of ``fall`` from rung to rung: stated ones, then a short decimal."""
    if not 0 < fall < 100:
        return []
    width, rungs = sight.rungs * fall, sight.rungs
    found: Bases = []
    for stated in (config.bases, config.others):
        found += [(b, None) for b in stated if b > 1 and abs(math.log(b) - width) < tolerance]
    for base in config.bases:  # over a width that is not the number of pairs
        dim = 2 * math.log(base) / fall
        if round(dim) != 2 * rungs and abs(dim - round(dim)) < tolerance * dim and round(dim) > 2 * sight.steps[-1]:
            found.append((base, round(dim)))
    if (short := short_decimal(exp(width), tolerance)) is not None and short > 1:
        found.append((short, None))
    for base in config.others:
        dim = 2 * math.log(base) / fall if base > 1 else 0.0
        if abs(dim - round(dim)) < tolerance * dim and round(dim) in config.whole and round(dim) > 2 * sight.steps[-1]:
            found.append((base, round(dim)))
    return list(dict.fromkeys(found))


def straight(sight: Sight, config: Numbers) -> Bases:
    """Bases of ladders that fall evenly; with a single rung every base is the same one: the config's, else 10000."""
    if len(sight.steps) == 1:
        return [(config.bases[0] if config.bases else 10_000.0, None)]
    return bases_of(sight, config, fall(sight, sight.ladder()))


def fall(sight: Sight, ladder: Sequence[float], last: int | None = None) -> float:
    """The mean logarithmic fall from rung to rung, from the first pair to pair ``last`` (default: to the last one)."""
    turning = [(i, f) for i, f in zip(sight.steps, ladder, strict=True) if f > 0]
    if len(turning) < 2:
        return 0.0
    (i, f), (j, g) = turning[0], turning[-1 if last is None else last]
    return (math.log(f) - math.log(g)) / (j - i)


def snapped(value: float, config: Numbers, digits: int = _DIGITS) -> list[float]:
    """What a solved number may be: one of the config's, else a short decimal."""
    found = (config.near(value, SOLVED), short_decimal(value, SOLVED, digits))
    return list(dict.fromkeys(x for x in found if x is not None and x > 0))


def short_decimal(value: float, tolerance: float, digits: int = _DIGITS) -> float | None:
    """The decimal of few digits that ``value`` is, nearly."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits - 1}e}")
    return short if abs(short - value) <= tolerance * abs(value) else None


def rounded(bound: float, config: Numbers) -> list[float]:
    """A bound of a blend, which two pairs show less sharply than a frequency shows its base."""
    found = (config.near(bound, 1e-3), short_decimal(bound, 1e-3, 2))
    return list(dict.fromkeys(x for x in found if x is not None and x > 0))


def with_scaling(bases: Bases, scaling: Scaling | None) -> Iterator[dict[str, Any]]:
    for base, dim in bases:
        fields: dict[str, Any] = {"base": base}
        if dim is not None:
            fields["exponent_dim"] = dim
        yield fields if scaling is None else fields | {"scaling": scaling}


def built(scheme: Callable[..., Any], *values: Any, **named_values: Any) -> Iterator[Any]:
    """The scaling, if these parameters go together."""
    try:
        yield scheme(*values, **named_values)
    except (ValueError, OverflowError):
        return


def exp(value: float) -> float:
    """``e ** value``, infinite where no float holds it."""
    return math.exp(value) if value < 700 else math.inf


def is_positive(value: Any) -> TypeGuard[float]:
    """Whether it is a number above 0."""
    return is_number(value) and value > 0


def is_one(value: float) -> bool:
    """Whether a quotient of frequencies is 1, as near as float32 shows it."""
    return abs(value - 1) <= 4 * TOLERANCE
