"""Files as numbered lines of text or JSON, and errors that name file and line.

Only a newline ends a line: the text may hold other separators."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from phasor.support.checks import keys_once

from ...run_folder.files import shown


class Location(NamedTuple):
    """A line of a file, counted from 1.

    >>> Location(Path("train.json"), 17).fault("text must not be empty")
    ValueError('train.json:17: text must not be empty')
    """

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def fault(self, rule: str) -> ValueError:
        """The error to raise: file, line and rule, on one line."""
        return ValueError(f"{self}: {rule}")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without their ends (LF or CRLF) and without a byte order mark.

    Raises ``ValueError`` where there is no such file, where it holds nothing, and for bytes that are not UTF-8.
    """
    if not path.is_file():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    lines = split_lines(path, path.read_bytes())
    if not any(line.strip() for line in lines):
        raise Location(path, 1).fault("file must hold at least one sentence, got an empty file")
    return lines


def split_lines(path: Path, data: bytes) -> list[str]:
    """The lines of ``data``, the content of ``path``; a newline at the end begins no further one."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise Location(path, line).fault(f"file must be UTF-8, got {byte}; convert it") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def json_lines(path: Path, lines: list[str]) -> Iterator[tuple[Location, dict[str, Any]]]:
    """The JSON object of each line that is not blank."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            location = Location(path, number)
            item = _decode(location, line)
            if not isinstance(item, dict):
                raise location.fault(f"item must be a JSON object, got {shown(item)}")
            yield location, item


def member(location: Location, item: dict[str, Any], key: str, kind: type, what: str) -> Any:
    """``item[key]``, refused where it is missing or not of ``kind``."""
    if key not in item:
        raise location.fault(f"item must have the key {key!r} ({what}), got the keys {shown(list(item))}")
    if not isinstance(item[key], kind):
        raise location.fault(f"{key} must be {what}, got {shown(item[key])}")
    return item[key]


def _decode(location: Location, line: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=keys_once)
    except json.JSONDecodeError as error:
        raise location.fault(f"line must be JSON, got an error at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise location.fault(f"line must be JSON, got {shown(str(error))}") from None
