"""Where in a file something stands, and the one line that says what is wrong there."""

from pathlib import Path
from typing import Any, NamedTuple

SHOWN = 60  # characters of a value that a message repeats


class Place(NamedTuple):
    """A line of a file, counted from 1.

    >>> Place(Path("train.json"), 17).fault("text must not be empty")
    ValueError('train.json:17: text must not be empty')
    """

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def fault(self, rule: str) -> ValueError:
        """The error to raise: file, line and rule, on one line."""
        return ValueError(f"{self}: {rule}")


def shown(value: Any) -> str:
    """``value`` as a message repeats it: on one line, cut where it is long.

    >>> shown("a\\nb"), len(shown("a" * 1000))
    ("'a\\\\nb'", 60)
    """
    try:
        text = repr(value)
    except RecursionError:  # JSON can nest as deep as Python can read it, which is deeper than it can print it
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
