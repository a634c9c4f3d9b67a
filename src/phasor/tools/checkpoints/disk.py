"""What is on the disk: large files synced, and room."""

import errno
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ...support.number_text import size_text


def settle(files: Iterable[tuple[int, Path | None]]) -> None:
    """Sync and close files; while one goes to the disk, the next is written. With a path, it gets that name then,
    instead of the same with ``.partial``."""
    with ThreadPoolExecutor(1) as disk:
        last: Future[None] | None = None
        for fd, path in files:
            try:
                if last is not None:
                    last.result()
            except BaseException:
                os.close(fd)
                raise
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


def check_room(folder: Path, needed: int) -> None:
    """Raises ``OSError`` if the file system of ``folder`` has less room than ``needed``."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"cannot hold {size_text(needed)} more, {size_text(free)} are free; make room first",
            str(folder),
        )
