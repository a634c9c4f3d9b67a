"""Files written so that a killed process leaves nothing that looks whole: beside the target, synced, then renamed.

``DST.phasor-partial/`` holds a journal (which plan this is), ``files/``, and, for a moment, what is replaced. A file
stands there under its name only when all its bytes are on the disk. The last step renames ``files/`` to ``DST``.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .opening import read_json
from .output import Output
from .stream import Tell, write_segment
from .words import in_units

SUFFIX = ".phasor-partial"
JOURNAL, FILES, OLD, LOCK = "journal.json", "files", "replaced", "lock"


class Staging:
    """The folder beside ``target`` in which it grows."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(target.name + SUFFIX)
        self.files, self.old = self.folder / FILES, self.folder / OLD

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes here meanwhile; the system frees the lock of a process that dies."""
        self.folder.mkdir(exist_ok=True)
        with open(self.folder / LOCK, "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(f"{self.folder}: another process converts into it now; wait for it") from None
            yield

    def committed(self, fingerprint: str) -> bool:
        """Whether a run of the same plan was killed after its last step, before it removed its journal."""
        journal = self.folder / JOURNAL
        done = journal.exists() and not self.files.exists() and self.target.exists()
        return done and read_json(journal).get("plan") == fingerprint

    def prepare(self, fingerprint: str) -> bool:
        """Take up what an earlier run of the same plan left, or begin anew. Returns whether all is committed already.

        Raises ``ValueError`` for a folder of this name that no conversion made.
        """
        if self.old.exists() and not self.target.exists():  # killed between the two renames
            os.rename(self.old, self.target)
        elif self.old.exists():  # killed after them
            shutil.rmtree(self.old)
        journal = self.folder / JOURNAL
        if {entry.name for entry in self.folder.iterdir()} - {JOURNAL, FILES, OLD, LOCK, f"{JOURNAL}.partial"}:
            raise ValueError(f"{self.folder}: is in the way, and not what a conversion left; move it elsewhere")
        if self.committed(fingerprint):
            return True
        if journal.exists() and self.files.exists() and read_json(journal).get("plan") == fingerprint:
            return False
        journal.unlink(missing_ok=True)
        if self.files.exists():
            shutil.rmtree(self.files)
        self.files.mkdir()
        write_file(journal, json.dumps({"plan": fingerprint, "target": str(self.target)}).encode())
        return False

    def missing(self, outputs: tuple[Output, ...]) -> list[Output]:
        """The files that are not complete yet."""
        return [o for o in outputs if not ((at := self.files / o.name).is_file() and at.stat().st_size == o.size)]

    def write(self, outputs: list[Output], tell: Tell) -> None:
        """Write files, each to a temporary name; while one is synced to the disk, the next one is written."""
        with ThreadPoolExecutor(1) as disk:
            syncing: Future[None] | None = None
            for output in outputs:
                path = self.files / output.name
                path.parent.mkdir(parents=True, exist_ok=True)
                fd = os.open(
                    f"{path}.partial", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
                )
                try:
                    for segment in output.segments:
                        write_segment(fd, segment, tell)
                    if output.finish is not None:
                        output.finish(fd)
                    if (size := os.fstat(fd).st_size) != output.size:
                        raise ValueError(f"{path}: must have {output.size} bytes, got {size}; a file changed meanwhile")
                except BaseException as error:
                    os.close(fd)
                    os.unlink(f"{path}.partial")
                    raise self._said(error, path) from error
                if syncing is not None:
                    syncing.result()
                syncing = disk.submit(_settle, fd, path)
            if syncing is not None:
                syncing.result()

    def _said(self, error: BaseException, path: Path) -> BaseException:
        """A full disk in words, with the way out."""
        if not isinstance(error, OSError):
            return error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        out = f"; make room and run it again to go on, or remove {self.folder}" if full else ""
        return OSError(error.errno, f"cannot write ({error.strerror}); {self.target} is untouched{out}", str(path))

    def commit(self) -> None:
        """The files become the target, in one rename, and the journal goes."""
        for folder, _, _ in os.walk(self.files):
            sync_folder(Path(folder))
        if self.target.exists():
            os.rename(self.target, self.old)
        os.rename(self.files, self.target)
        sync_folder(self.target.parent)
        self.clear()

    def clear(self) -> None:
        """Remove the journal's folder, with what was replaced."""
        shutil.rmtree(self.folder)


def _settle(fd: int, path: Path) -> None:
    """All bytes are on the disk before the file has its name."""
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(f"{path}.partial", path)


def write_file(path: Path, data: bytes) -> None:
    """A small file that is there as a whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)
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
