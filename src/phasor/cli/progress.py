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


def progress(things: str) -> Callable[..., None]:
    """To be called with what is done and what there is; silent where stderr is no terminal."""
    start = last = time.monotonic()

    def tell(done: int, most: int, *_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if is_first() and sys.stderr.isatty() and now - last >= EVERY and done:
            last = now
            say(f"{done} of at most {most} {things}, {(now - start) / done * (most - done):.0f} s left", error=True)

    return tell
