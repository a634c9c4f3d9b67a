"""Checks of plain numbers, so that every error names the argument, the rule, the value and the way out alike."""

import math
from typing import Any


def number(name: str, value: Any, *, above: float | None = None, at_least: float | None = None) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite real number (not a bool) inside the bound.

    >>> number("factor", 0, above=0)
    Traceback (most recent call last):
    ValueError: factor must be a finite number above 0, got 0
    """
    bound = f" above {above:g}" if above is not None else f" of at least {at_least:g}" if at_least is not None else ""
    real = isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if not real or (above is not None and value <= above) or (at_least is not None and value < at_least):
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r}")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def whole(name: str, value: Any, *, at_least: int = 1) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer (not a bool, not a float) of at least ``at_least``.

    >>> whole("seq_len", 8.0)
    Traceback (most recent call last):
    ValueError: seq_len must be an integer of at least 1, got 8.0
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
