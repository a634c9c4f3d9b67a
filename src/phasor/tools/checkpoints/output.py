"""What is to be written: files as rows of segments: bytes at hand, a range to copy, or a tensor to reorder."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """One file to write; ``finish`` puts in what its bytes decide, once they are there."""

    name: str
    segments: tuple[Segment, ...]
    finish: Callable[[int], None] | None = None

    @property
    def size(self) -> int:
        return sum(len(s) if isinstance(s, bytes) else s.size for s in self.segments)


def segment(tensor: Tensor, move: Move | None) -> Segment:
    """The simplest way to write a tensor."""
    if move is None and isinstance(tensor, Stored):
        return Range(tensor.file, tensor.offset, tensor.size)
    return Reordered(tensor, move)


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Ranges that follow one another in one file as one."""
    found: list[Segment] = []
    for each in segments:
        last = found[-1] if found else None
        if isinstance(each, Range) and not each.size:
            continue
        if isinstance(each, Range) and isinstance(last, Range) and _follows(last, each):
            found[-1] = Range(last.file, last.offset, last.size + each.size)
        else:
            found.append(each)
    return tuple(found)


def _follows(first: Range, second: Range) -> bool:
    return first.file == second.file and first.offset + first.size == second.offset


def whole_file(path: Path) -> Range:
    """A file to copy as it is."""
    return Range(path, 0, size_of(path))


def as_json(data: Any) -> bytes:
    """A JSON file for people; ``ValueError`` for numbers that are not finite, which JSON has not."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
