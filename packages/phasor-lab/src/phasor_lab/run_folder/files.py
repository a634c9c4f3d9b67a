"""JSON that is whole or absent, and like what was written, or refused."""

import json
from pathlib import Path
from typing import Any

from phasor.support.regular_files import read_file
from phasor.support.whole_files import write_whole


def write_json(path: Path, data: Any) -> None:
    write_whole(path, json_bytes(data))


def json_bytes(data: Any) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()


def read_json(path: Path, pattern: Any = object) -> Any:
    """JSON that `conform` finds to be like ``pattern``. Raises ``ValueError`` naming the file and what is wrong."""
    try:
        text = read_file(path)
    except ValueError as error:
        raise ValueError(f"{error}; put it back, or run again what writes it") from None
    try:
        return conform(parsed(text), pattern)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON as phasor wrote it, got: {error}; delete it and run again") from None


def parsed(text: str | bytes) -> Any:
    """JSON without NaN and infinities, which it has no words for and Python reads all the same."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def conform(data: Any, pattern: Any, place: str = "its content") -> Any:
    """``data``, or ``ValueError`` where it is not like ``pattern``: types, ``{key: pattern}`` (a key with ? may be
    absent, further ones are allowed), ``[pattern of every item]``, a tuple of types to choose from. Booleans are no
    numbers, and integers have at most 62 bits.

    >>> conform({"step": 3, "rows": [{"loss": True}]}, {"step": int, "rows": [{"loss": float}]})
    Traceback (most recent call last):
    ValueError: loss must be float, got True
    """
    if isinstance(pattern, dict):
        conform(data, dict, place)
        for word, inner in pattern.items():
            key = word.removesuffix("?")
            if key in data:
                conform(data[key], inner, key)
            elif key == word:
                raise ValueError(f"{place} must have the key {key!r}, got {shown(sorted(data))}")
    elif isinstance(pattern, list):
        conform(data, list, place)
        for item in data:
            conform(item, pattern[0], place)
    else:
        kinds = pattern if isinstance(pattern, tuple) else (pattern,)
        if not isinstance(data, kinds) or (isinstance(data, bool) and not {bool, object} & set(kinds)):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{place} must be {names}, got {shown(data)}")
        if isinstance(data, int) and abs(data) > 2**62:
            raise ValueError(f"{place} must be an integer of at most 62 bits, got one of {data.bit_length()}")
    return data


def shown(value: Any) -> str:
    """A value as an error repeats it: cut where it is long.

    >>> len(shown("a" * 1000))
    60
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints; lists in lists in lists
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= 60 else f"{text[:57]}..."
