"""The metrics of a run, one JSON line a step: none missing, none twice, however often the run was killed."""

import json
import math
import os
from pathlib import Path
from types import TracebackType

from ..runs import checkpoint


class Log:
    """Lines of ``path`` from step ``first`` on; what a killed run wrote beyond its checkpoint is cut off.

    Processes that do not write (``writes=False``) keep quiet. Raises ``OSError`` naming the file if the disk is full.
    """

    def __init__(self, path: Path, first: int, writes: bool) -> None:
        self.path = path
        lines = path.read_bytes().splitlines(keepends=True)[:first] if path.exists() else []
        self.last_loss = float(json.loads(lines[-1])["loss"]) if lines else math.nan
        self._file = None
        if writes:
            checkpoint.write_atomically(path, b"".join(lines))
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)

    def add(self, step: int, loss: float, tokens_per_second: float) -> None:
        self.last_loss = loss
        if self._file is not None:
            line = {"step": step, "loss": loss, "tokens_per_second": round(tokens_per_second)}
            try:
                self._file.write((json.dumps(line) + "\n").encode())
            except OSError as error:
                reason = f"cannot write ({error.strerror}); the last checkpoint is untouched"
                raise OSError(error.errno, reason, str(self.path)) from error

    def sync(self) -> None:
        """All lines are on the disk: to be called before a checkpoint that counts on them."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
