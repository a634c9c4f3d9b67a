"""What is written: files as rows of segments (bytes, ranges to copy, tensors to reorder), written block by block."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...support.number_text import size_text
from ...support.regular_files import opened
from .opening import size_of
from .qk_tensors import Move
from .stored import Stored, Tensor


@dataclass(frozen=True)
class Range:
    """``size`` bytes of a file from ``offset``, copied as they are."""

    file: Path
    offset: int
    size: int


@dataclass(frozen=True)
class Reordered:
    """A tensor whose indices along one axis take another order, or whose parts are joined; ``part``: only the share
    number ``part[1]`` of ``part[2]`` equal ones along axis ``part[0]``."""

    tensor: Tensor
    move: Move | None
    part: tuple[int, int, int] | None = None

    @property
    def size(self) -> int:
        return self.tensor.size // (self.part[2] if self.part else 1)


Segment = bytes | Range | Reordered


@dataclass(frozen=True)
class Output:
    """One file to write: its segments one after another, or, with ``save``, what that makes of them at a path."""

    name: str
    segments: tuple[Segment, ...]
    save: Callable[[Path], None] | None = None

    @property
    def size(self) -> int:
        """Its bytes; with ``save`` those of its segments, and the file has some more."""
        return sum(len(s) if isinstance(s, bytes) else s.size for s in self.segments)


def segment(tensor: Tensor, move: Move | None) -> Segment:
    """The simplest way to write a tensor."""
    if move is None and isinstance(tensor, Stored):
        return Range(tensor.file, tensor.offset, tensor.size)
    return Reordered(tensor, move)


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Ranges that follow one another in one file as one."""
    joined: list[Segment] = []
    for each in segments:
        last = joined[-1] if joined else None
        if isinstance(each, Range) and not each.size:
            continue
        if (
            isinstance(each, Range)
            and isinstance(last, Range)
            and last == Range(each.file, each.offset - last.size, last.size)
        ):
            joined[-1] = Range(last.file, last.offset, last.size + each.size)
        else:
            joined.append(each)
    return tuple(joined)


def whole_file(path: Path) -> Range:
    """A file to copy as it is."""
    return Range(path, 0, size_of(path))


def as_json(data: Any) -> bytes:
    """A JSON file for people; ``ValueError`` for numbers that are not finite, which JSON has not."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


CHUNK = 8 * 2**20
CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}  # no copy inside the kernel between these files
Tell = Callable[[int], None]  # is told how many bytes were written


def write_output(path: Path, output: Output, tell: Tell) -> None:
    """One new file, on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    if output.save is not None:
        output.save(path)
        tell(output.size)
    with open(path, "r+b", buffering=0) as file:
        for segment in () if output.save else output.segments:
            write_segment(file.fileno(), segment, tell)
        os.fsync(file.fileno())


def write_segment(fd: int, segment: Segment, tell: Tell) -> None:
    """Append one segment to a file that is open for writing."""
    if isinstance(segment, bytes):
        write_all(fd, segment, tell)
    elif isinstance(segment, Range):
        with opened(segment.file) as source:
            copy(source, segment.offset, fd, segment.size, segment.file, tell)
    else:
        from .reordering import reordered  # brings numpy, which a plan does not need

        write_all(fd, reordered(segment.tensor, segment.move, segment.part).data, tell)


def write_all(fd: int, data: bytes | memoryview, tell: Tell) -> None:
    """All of ``data``, however many calls that takes."""
    left = memoryview(data).cast("B") if len(data) else memoryview(b"")
    while left:
        done = os.write(fd, left)
        tell(done)
        left = left[done:]


def copy(source: int, offset: int, target: int, size: int, path: Path, tell: Tell) -> None:
    """Bytes from one file to the end of another, without a copy in this process where the system can."""
    inside = True
    while size:
        if inside:
            try:
                done = os.copy_file_range(source, target, min(size, 4 * CHUNK), offset)
            except OSError as error:
                if error.errno not in CANNOT:
                    raise
                inside = False
                continue
            tell(done)
        else:
            data = os.pread(source, min(size, CHUNK), offset)
            write_all(target, data, tell)
            done = len(data)
        if not done:
            raise ValueError(f"{path}: ends at byte {offset}, {size} bytes early; it was cut while it was read")
        offset, size = offset + done, size - done


def check_room(folder: Path, needed: int) -> None:
    """Raises ``OSError`` if the file system of ``folder`` has less room than ``needed``."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"cannot hold {size_text(needed)} more, {size_text(free)} are free; make room first",
            str(folder),
        )
