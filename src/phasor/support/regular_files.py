"""Files that others wrote, opened without surprises: regular files only, so that nothing waits or grows without end."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def other_kind(mode: int) -> str:
    """What a file of this mode is in words; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A file descriptor to read a regular file (links are followed). Raises ``ValueError`` for anything else.

    Nothing blocks: a pipe that nobody writes to is refused, not waited for.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{path}: cannot be opened ({why})") from None
    try:
        if other := other_kind(os.fstat(fd).st_mode):
            raise ValueError(f"{path}: must be a regular file, and is {other}")
        yield fd
    finally:
        os.close(fd)


def read_file(path: Path) -> bytes:
    """All bytes of a regular file. Raises ``ValueError`` for what is none, ``OSError`` where the disk fails."""
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        return file.read()
