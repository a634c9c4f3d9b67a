"""Numbers and counts as people write them: bytes, ranges, and how many things there are."""

from collections.abc import Sequence, Sized

MOST = 8  # ranges in one line


def size_text(count: float) -> str:
    """Bytes, in the units of memory.

    >>> size_text(1000), size_text(3 * 2**30), size_text(1_056_540), size_text(1010 * 2**20)
    ('1,000 bytes', '3 GiB', '1.01 MiB', '1,010 MiB')
    """
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.0f} {name}" if count >= 999.5 * unit else f"{count / unit:.3g} {name}"
    return f"{count:,} bytes"


def counted(things: Sized, word: str) -> str:
    """``3 tensors``.

    >>> counted([7], "file")
    '1 file'
    """
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"


def runs(numbers: Sequence[int]) -> list[str]:
    """Consecutive numbers as one word each.

    >>> runs([0, 1, 2, 4, 6, 7])
    ['0-2', '4', '6-7']
    """
    pairs: list[list[int]] = []
    for n in numbers:
        if pairs and pairs[-1][1] + 1 == n:
            pairs[-1][1] = n
        else:
            pairs.append([n, n])
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in pairs]


def ranges(numbers: Sequence[int]) -> str:
    """``0-2, 4, 6-7``; a long list is cut.

    >>> ranges([0, 1, 2, 4, 6, 7])
    '0-2, 4, 6-7'
    """
    text = runs(numbers)
    return ", ".join(text if len(text) <= MOST else [*text[: MOST - 1], f"… ({len(text) - MOST + 1} more)"])
