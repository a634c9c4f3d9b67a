"""The metrics of a run, one JSON line a step: none missing, none twice, however often the run was killed."""

import hashlib
import json
import math
import os
from pathlib import Path
from types import TracebackType

from ...support.whole_files import write_whole


class Log:
    """Lines of ``path`` from step ``first`` on; what a killed run wrote beyond its checkpoint is cut off.

    ``sha256`` is that of all steps and losses so far, for the checkpoint: a log with another past is refused. Processes
    that do not write (``writes=False``) keep quiet. Raises ``OSError`` naming the file if the disk is full.
    """

    def __init__(self, path: Path, first: int, past: str | None, writes: bool) -> None:
        self.path = path
        lines = path.read_bytes().splitlines(keepends=True)[:first] if path.exists() else []
        self.last_loss, self._sha256 = math.nan, hashlib.sha256()
        try:
            for line in lines:
                entry = json.loads(line)
                self._count(entry["step"], entry["loss"])
            if past is not None and past != self.sha256:
                raise ValueError("another log")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(
                f"{path} must hold the {first} steps before the checkpoint as they were written, got another log; "
                "put it back, or delete the checkpoint to start over"
            ) from None
        self._file = None
        if writes:
            write_whole(path, b"".join(lines))
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def _count(self, step: int, loss: float) -> None:
        self.last_loss = loss
        self._sha256.update(json.dumps([step, loss]).encode())

    def add(self, step: int, loss: float, tokens_per_second: float) -> None:
        self._count(step, loss)
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
