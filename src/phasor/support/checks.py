"""Checks of plain numbers, so that every error names the argument, the rule, the value and the way out alike."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any


def number(name: str, value: Any, *, above: float | None = None, at_least: float | None = None) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite real number (not a bool) inside the bound.

    >>> number("factor", 0, above=0)
    Traceback (most recent call last):
    ValueError: factor must be a finite number above 0, got 0
    """
    bound = f" above {above:g}" if above is not None else f" of at least {at_least:g}" if at_least is not None else ""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    real = real and abs(value) <= sys.float_info.max  # a comparison, which compilers trace
    if not real or (above is not None and value <= above) or (at_least is not None and value < at_least):
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r}")


def whole(name: str, value: Any, *, at_least: int = 1) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer (not a bool, not a float) from ``at_least`` to 2**62.

    >>> whole("seq_len", 8.0)
    Traceback (most recent call last):
    ValueError: seq_len must be an integer of at least 1, got 8.0
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
    if value > 2**62:
        raise ValueError(f"{name} must be an integer of at most 2**62, got {value!r}")


def flag(name: str, value: Any) -> None:
    """Raise ``ValueError`` unless ``value`` is True or False: a word like ``"false"`` would count as true.

    >>> flag("interleaved", "false")
    Traceback (most recent call last):
    ValueError: interleaved must be True or False, got 'false'
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def listed(name: str, value: Any) -> None:
    """Raise ``ValueError`` unless ``value`` is a list or tuple.

    >>> listed("sizes", 4)
    Traceback (most recent call last):
    ValueError: sizes must be a list or tuple, got 4
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list or tuple, got {value!r}")


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of two or more words.

    >>> one_of("angles", "hf", ["exact", "float32"])
    Traceback (most recent call last):
    ValueError: angles must be 'exact' or 'float32', got 'hf'
    """
    if value not in choices:
        listing = ", ".join(f"{c!r}" for c in choices[:-1]) + f" or {choices[-1]!r}"
        raise ValueError(f"{name} must be {listing}, got {value!r}")


def keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dictionary, or ``ValueError`` for a key that stands in it twice (``object_pairs_hook``).

    JSON readers keep the last of the two without a word.

    >>> keys_once([("base", 1e4), ("base", 1e6)])
    Traceback (most recent call last):
    ValueError: the key 'base' stands twice in one object; keep one
    """
    data = dict(pairs)
    if len(data) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r} stands twice in one object; keep one")
    return data
