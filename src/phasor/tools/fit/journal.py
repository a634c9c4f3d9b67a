"""A journal of evaluations: a search that was killed goes on where it was, with the same result to the bit."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...support.processes import Group

Line = dict[str, Any]


class Journal:
    """The values of the evaluations of one search, in their order, in a file of a line of JSON each.

    The first line says which ``search`` it is. What a search asks for depends on that and on earlier values alone. So
    it is run again from its start, and the values that the file holds are not computed again, except the first one:
    where that comes out otherwise, the model is another one.
    """

    def __init__(self, path: Path, search: Line, group: Group) -> None:
        self.path, self.group, self.done = path, group, 0
        lines: list[Line] = group.gather(_lines(path) if group.first else None)[0]
        self.first, self.known = lines[0] if lines else search, lines[1:]
        self.file: int | None = None
        for name, value in search.items():
            if self.first.get(name) != value:
                raise self._other(f"with {name} {self.first.get(name)}, and this one has {value}")

    @classmethod
    @contextmanager
    def at(cls, path: Path | None, search: Line, group: Group) -> Iterator["Journal | None"]:
        """The journal of a file, which is deleted when the block ends without an error; None without a file."""
        if path is None:
            yield None
            return
        journal = cls(path, search, group)
        try:
            yield journal
        finally:
            if journal.file is not None:
                os.close(journal.file)
        if group.first:
            path.unlink(missing_ok=True)

    def value(self, compute: Callable[[], list[float]]) -> list[float]:
        """The value of the next evaluation: read, else computed and written."""
        this = self.done
        self.done += 1
        if 0 < this < len(self.known):
            known: list[float] = self.known[this]["value"]
            return known
        value = compute()
        if this >= len(self.known):
            self._write({"value": value})
        elif value != self.known[this]["value"]:
            raise self._other("of another model, or on another machine: its first loss is not the same")
        return value

    def _other(self, how: str) -> ValueError:
        return ValueError(
            f"{self.path} holds the evaluations of another search, {how}; delete it to begin anew, or write to another "
            "file"
        )

    def _write(self, line: Line) -> None:
        if not self.group.first:
            return
        if self.file is None:
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            if self.known:
                whole = os.pread(self.file, os.fstat(self.file).st_size, 0).rfind(b"\n") + 1
                os.ftruncate(self.file, whole)  # without a line that was cut short
            else:
                os.ftruncate(self.file, 0)
                os.write(self.file, _bytes(self.first))
        os.write(self.file, _bytes(line))
        os.fsync(self.file)


def _bytes(line: Line) -> bytes:
    return (json.dumps(line) + "\n").encode()


def _lines(path: Path) -> list[Line]:
    """The lines of a journal, without the last one where it was cut short."""
    if not path.exists():
        return []
    data = path.read_bytes()
    try:
        lines = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        if not all(isinstance(line, dict) for line in lines) or not all("value" in line for line in lines[1:]):
            raise ValueError
    except ValueError:
        raise ValueError(f"{path} is no journal of evaluations; delete it, or write to another file") from None
    return lines
