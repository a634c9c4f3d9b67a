"""A journal of evaluations: a search that was killed goes on where it was, with the same result to the bit."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phasor.support.processes import Group
from phasor.support.whole_files import remove_partial, write_whole

from ..run_folder.files import read_json

Value = list[float]
PATTERN = {"search": dict, "values": [[float]]}


class Journal:
    """The values of the evaluations of one search, in their order, in a JSON file beside the options of the ``search``.

    What a search asks for depends on its options and on earlier values alone. So it is run again from its start, and
    the values that the file holds are not computed again, except the first one: where that comes out otherwise, the
    model is another one.
    """

    def __init__(self, path: Path, search: dict[str, Any], group: Group) -> None:
        self.path, self.search, self.group, self.done = path, search, group, 0
        if group.first:
            remove_partial(path.parent, path.name)
        found = read_json(path, PATTERN) if group.first and path.exists() else None
        data = group.gather(found)[0] or {"search": search, "values": []}
        self.values: list[Value] = data["values"]
        for name, value in search.items():
            if data["search"].get(name) != value:
                raise self._other(f"with {name} {data['search'].get(name)}, and this one has {value}")

    @classmethod
    @contextmanager
    def at(cls, path: Path | None, search: dict[str, Any], group: Group) -> Iterator["Journal | None"]:
        """The journal of a file, which is deleted when the block ends without an error; None without a file."""
        if path is None:
            yield None
            return
        yield cls(path, search, group)
        if group.first:
            path.unlink(missing_ok=True)

    def value(self, compute: Callable[[], Value]) -> Value:
        """The value of the next evaluation: read, else computed and written."""
        this = self.done
        self.done += 1
        if 0 < this < len(self.values):
            return self.values[this]
        value = compute()
        if this < len(self.values):
            if value != self.values[this]:
                raise self._other("of another model, or on another machine: its first loss is not the same")
            return value
        self.values.append(value)
        if self.group.first:
            write_whole(self.path, json.dumps({"search": self.search, "values": self.values}).encode())
        return value

    def _other(self, how: str) -> ValueError:
        return ValueError(
            f"{self.path} holds the evaluations of another search, {how}; delete it to begin anew, or write to another "
            "file"
        )
