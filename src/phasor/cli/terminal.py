"""Text for the terminal at hand: no wider than it is, and with nothing in it that a terminal would obey."""

import os
import shutil
import sys
import textwrap

from ..support.plain_text import printable, say

WIDEST = 100
HANGING = 13  # where the text of a row begins


def columns() -> int:
    """Of the terminal that is written to, at least 40; `WIDEST` where there is none and COLUMNS does not say it."""
    return max(40, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


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
    say(folded(text, columns()) if sys.stdout.isatty() or "COLUMNS" in os.environ else text)
