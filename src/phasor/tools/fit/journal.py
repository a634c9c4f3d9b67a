"""A journal of evaluations: a search that was killed goes on where it was, with the same result to the bit."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ...support.processes import Group


class Journal:
    """The values of the evaluations of one search, in their order, in a file of a line of JSON each.

    What a search asks for depends on its seed and on earlier values alone. So it is run again from its start, and
    the values that the file holds are not computed again, except the first one: it must come out the same, or the file
    belongs to another search.
    """

    def __init__(self, path: Path, group: Group) -> None:
        self.path, self.group, self.done = path, group, 0
        self.known: list[dict[str, Any]] = group.gather(_lines(path) if group.first else None)[0]
        self.file: int | None = None

    @classmethod
    @contextmanager
    def at(cls, path: Path | None, group: Group) -> Iterator["Journal | None"]:
        """The journal of a file, which is deleted when the block ends without an error; None without a file."""
        if path is None:
            yield None
            return
        journal = cls(path, group)
        try:
            yield journal
        finally:
            if journal.file is not None:
                os.close(journal.file)
        if group.first:
            path.unlink(missing_ok=True)

    def value(self, at: list[float], compute: Callable[[], list[float]]) -> list[float]:
        """The value of the next evaluation, which is made ``at`` these divisors: read, else computed and written."""
        this = self.done
        self.done += 1
        if 0 < this < len(self.known):
            self._check(at == self.known[this]["at"])
            value: list[float] = self.known[this]["value"]
            return value
        value = compute()
        if this < len(self.known):
            self._check({"at": at, "value": value} == self.known[this])
        elif self.group.first:
            self._write({"at": at, "value": value})
        return value

    def _check(self, same: bool) -> None:
        if not same:
            raise ValueError(
                f"{self.path} holds the evaluations of another search (of another model, text, seed or machine); delete "
                "it to begin anew, or write to another file"
            )

    def _write(self, line: dict[str, Any]) -> None:
        if self.file is None:
            self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            whole = b"".join(map(_bytes, self.known))
            os.truncate(self.file, len(whole))  # without a line that was cut short
            os.lseek(self.file, 0, os.SEEK_END)
        os.write(self.file, _bytes(line))
        os.fsync(self.file)


def _bytes(line: dict[str, Any]) -> bytes:
    return (json.dumps(line) + "\n").encode()


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal, without the last one where it was cut short."""
    if not path.exists():
        return []
    data = path.read_bytes()
    try:
        lines = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        if not all(isinstance(line, dict) and {"at", "value"} == set(line) for line in lines):
            raise ValueError
    except ValueError:
        raise ValueError(f"{path} is no journal of evaluations; delete it, or write to another file") from None
    return lines


def listed(tensor: Tensor) -> list[float]:
    """Its float64 values, as JSON keeps them to the bit."""
    return [float(value) for value in tensor.tolist()]
