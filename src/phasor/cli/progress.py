"""How far a long command is, with the time left, on stderr; from the first of several processes."""

import os
import sys
import time
from collections.abc import Callable

from ..support.plain_text import say

EVERY = 5.0  # seconds between two lines


def is_first() -> bool:
    """Of the processes that torchrun started: the one that speaks and writes."""
    return os.environ.get("RANK", "0") == "0"


def silent(*_: object) -> None:
    """Nothing is told."""


def progress(things: str, first: int = 0) -> Callable[..., None]:
    """To be called with what is done, what there is and a note; silent where stderr is no terminal.

    ``first``: what had been done before.
    """
    start = last = time.monotonic()

    def tell(done: int, most: int, note: object = "") -> None:
        nonlocal last
        now = time.monotonic()
        if is_first() and sys.stderr.isatty() and now - last >= EVERY and done > first:
            last = now
            left = (now - start) / (done - first) * (most - done)
            say(f"{done} of at most {most} {things}, {left:.0f} s left  {note}".rstrip(), error=True)

    return tell
