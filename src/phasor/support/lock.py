"""One process at a time in a folder."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .regular_files import other_kind

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
        with open(_opened(path), "r+") as file:
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


def _opened(path: Path) -> int:
    """Its descriptor; raises ``ValueError`` for what is none of ours: a link leads to a file that would be emptied."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if other := "a link" if stat.S_ISLNK(mode) else other_kind(mode):
            raise ValueError(f"{path}: must be a regular file that phasor made, and is {other}; remove it")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
