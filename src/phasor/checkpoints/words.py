"""Sizes, counts and the errors of other libraries, for people."""

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


def first_line(error: BaseException) -> str:
    """What an error says first, at most 200 characters; the name of its class where it says nothing.

    >>> first_line(ValueError("no such key\\nand more")), first_line(AssertionError())
    ('no such key', 'AssertionError')
    """
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
