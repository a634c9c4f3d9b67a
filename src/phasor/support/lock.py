"""One process at a time in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked there
    fcntl = None  # type: ignore[assignment]

LOCK = ".phasor-lock"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make ``folder`` if it is absent and keep other processes out of it; raise ``ValueError`` if one is in it.

    The lock ends with the process, however that ends: what a killed one left is taken over. Where the file system has
    no locks, nobody is kept out.
    """
    path = folder / LOCK
    if fcntl is None:
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    while True:
        folder.mkdir(parents=True, exist_ok=True)  # its owner may have taken it away
        with open(path, "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise ValueError(
                    f"{folder} must be used by one process at a time, and process {file.read().strip() or '?'} "
                    "is at work in it; wait for it, or choose another folder"
                ) from None
            except OSError:  # a network's file system without locks
                pass
            if not _is(file.fileno(), path):  # its owner has just deleted it: what we hold keeps nobody out
                continue
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                path.unlink(missing_ok=True)  # while it is still ours
            return


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
