"""Sizes that are refused before anything is allocated: far above what these applications are for."""

from typing import Any

from ...support.checks import whole

MOST_WEIGHTS = 2**31  # 8 GiB in float32; training takes four times that


def at_most(name: str, value: Any, most: int, way_out: str = "make it smaller") -> None:
    """Raise ``ValueError`` unless ``value`` is an integer from 1 to ``most``.

    >>> at_most("layers", 10**9, 1024)
    Traceback (most recent call last):
    ValueError: layers must be at most 1,024, got 1,000,000,000; make it smaller
    """
    whole(name, value)
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}; {way_out}")
