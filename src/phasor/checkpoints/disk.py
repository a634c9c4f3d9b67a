"""What is on the disk, and who works in a folder: locks, syncs, small files that are whole or absent, room."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from .words import in_units

LOCK = ".phasor-lock"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else works in the folder meanwhile; it is made if it is not there. ``ValueError`` if somebody does.

    The system frees the lock of a process that dies. Where the file system has no locks, nobody is kept out.
    """
    while True:
        folder.mkdir(exist_ok=True)
        with open(folder / LOCK, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{folder}: another process is at work here; wait for it") from None
            except OSError:  # a network's file system without locks
                pass
            if not _is(file.fileno(), folder / LOCK):  # its owner has just deleted it: what we hold keeps nobody out
                continue
            try:
                yield
            finally:
                (folder / LOCK).unlink(missing_ok=True)  # while it is still ours
            return


def _is(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def settle(files: Iterable[tuple[int, Path | None]]) -> None:
    """Sync and close files; while one goes to the disk, the next is written. With a path, it gets that name then,
    instead of the same with ``.partial``."""
    with ThreadPoolExecutor(1) as disk:
        last: Future[None] | None = None
        for fd, path in files:
            if last is not None:
                last.result()
            last = disk.submit(_settle, fd, path)
        if last is not None:
            last.result()


def _settle(fd: int, path: Path | None) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    if path is not None:
        os.rename(f"{path}.partial", path)


def write_file(path: Path, data: bytes) -> None:
    """A small file that is there as a whole or not at all."""
    with open(f"{path}.partial", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.partial", path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_room(folder: Path, needed: int) -> None:
    """Raises ``OSError`` if the file system of ``folder`` has less room than ``needed``."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"cannot hold {in_units(needed)} more, {in_units(free)} are free; make room first",
            str(folder),
        )
