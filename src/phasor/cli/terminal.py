"""Text for the terminal at hand: no wider than it is, and with nothing in it that a terminal would obey."""

import os
import shutil
import sys
import textwrap
import unicodedata

WIDEST = 100
HANGING = 13  # where the text of a row begins


def columns() -> int:
    """Of the terminal that is written to, at least 40; `WIDEST` where there is none and COLUMNS does not say it."""
    return max(40, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


def printable(text: str) -> str:
    r"""The same, with control and format characters (but the ends of lines) written out.

    >>> print(printable("red \x1b[31m"))
    red \x1b[31m
    """
    return "".join(c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else _written(c) for c in text)


def _written(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def folded(text: str, width: int) -> str:
    """Lines that are too long go on below, where the text of their row begins."""
    lines = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        lines += textwrap.wrap(
            line, width, subsequent_indent=" " * HANGING, replace_whitespace=False, break_on_hyphens=False
        )
    return "\n".join(lines)


def show(text: str) -> None:
    """Print it: as it is into a file or a pipe, folded to the width of a terminal."""
    text = printable(text)
    print(folded(text, columns()) if sys.stdout.isatty() or "COLUMNS" in os.environ else text)
