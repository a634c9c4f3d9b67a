"""Sizes and counts, for people."""

from collections.abc import Sized


def in_units(size: float) -> str:
    """Bytes in decimal units.

    >>> in_units(1_056_540)
    '1.06 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size} B"
        size /= 1000
    return f"{size:.3g} TB"


def counted(things: Sized, word: str) -> str:
    """``3 tensors``.

    >>> counted([7], "file")
    '1 file'
    """
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"
