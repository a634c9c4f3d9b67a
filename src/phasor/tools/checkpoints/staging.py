"""Files written so that a killed process leaves nothing that looks whole: beside the target, synced, then renamed.

``DST.phasor-partial/`` holds a journal (which plan this is), ``files/``, and, for a moment, what is replaced. A file
stands there under its name only when all its bytes are on the disk. The last step renames ``files/`` to ``DST``.
"""

import errno
import json
import os
import shutil
from pathlib import Path

from ...support.lock import LOCK
from ...support.whole_files import remove_partial, sync_folder, write_whole
from .disk import settle
from .opening import read_json
from .output import Output
from .stream import Tell, write_segment

SUFFIX = ".phasor-partial"
JOURNAL, FILES, OLD = "journal.json", "files", "replaced"


class Staging:
    """The folder beside ``target`` in which it grows."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(target.name + SUFFIX)
        self.files, self.old = self.folder / FILES, self.folder / OLD

    @property
    def plan(self) -> str | None:
        """The fingerprint of the plan that the journal was written for."""
        journal = self.folder / JOURNAL
        return read_json(journal).get("plan") if journal.exists() else None

    def committed(self, fingerprint: str) -> bool:
        """Whether a run of the same plan was killed after its last step, before it removed its journal."""
        return not self.files.exists() and self.target.exists() and self.plan == fingerprint

    def prepare(self, fingerprint: str) -> bool:
        """Take up what an earlier run of the same plan left, or begin anew. Returns whether all is committed already.

        Raises ``ValueError`` for a folder of this name that no conversion made.
        """
        remove_partial(self.folder, JOURNAL)
        if {entry.name for entry in self.folder.iterdir()} - {JOURNAL, FILES, OLD, LOCK}:
            raise ValueError(f"{self.folder}: is in the way, and not what a conversion left; move it elsewhere")
        if self.old.exists() and not self.target.exists():  # killed between the two renames
            os.rename(self.old, self.target)
        elif self.old.exists():  # killed after them
            shutil.rmtree(self.old)
        if self.committed(fingerprint):
            return True
        if self.files.exists() and self.plan == fingerprint:
            return False
        journal = self.folder / JOURNAL
        journal.unlink(missing_ok=True)
        if self.files.exists():
            shutil.rmtree(self.files)
        self.files.mkdir()
        write_whole(journal, json.dumps({"plan": fingerprint, "target": str(self.target)}).encode())
        return False

    def missing(self, outputs: tuple[Output, ...]) -> list[Output]:
        """The files that are not complete yet."""
        return [o for o in outputs if not ((at := self.files / o.name).is_file() and at.stat().st_size == o.size)]

    def write(self, outputs: list[Output], tell: Tell) -> None:
        """Write files, each to a temporary name until it is on the disk."""
        settle(self._written(output, tell) for output in outputs)

    def _written(self, output: Output, tell: Tell) -> tuple[int, Path]:
        """The file, open and whole, with nothing synced."""
        path = self.files / output.name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(f"{path}.partial", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
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
        return fd, path

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
