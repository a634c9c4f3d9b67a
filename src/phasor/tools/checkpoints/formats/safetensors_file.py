"""The header of one safetensors file: all of it checked before anything is believed.

Source: the format's description and its reference reader (github.com/huggingface/safetensors, ``tensor.rs``): eight
bytes with the length of the header, JSON padded with spaces, then the tensors without holes or overlaps to the end.
"""

import gc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....support.json_files import parse_json
from ....support.regular_files import opened
from ..opening import instead_of_weights, read_at
from ..stored import BITS, Stored, bytes_of

MAX_HEADER = 100_000_000  # the reference reader's limit


@dataclass(frozen=True)
class SafetensorsFile:
    """One safetensors file: its tensors in the order of their bytes; ``head``: all bytes before the first."""

    path: Path
    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]
    head: bytes


@contextmanager
def _kept() -> Iterator[None]:
    """What is formed meanwhile stays: of 10^5 tensors a collector would look through all again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@_kept()
def read_header(path: Path) -> SafetensorsFile:
    """Raises ``ValueError`` naming file, tensor and rule for anything that the format does not allow."""
    with opened(path) as fd:
        size = os.fstat(fd).st_size
        if size < 8:
            raise ValueError(f"{path}: must have at least 8 bytes to be a safetensors file, got {size}")
        length = int.from_bytes(read_at(fd, 0, 8, path), "little")
        if length > min(MAX_HEADER, size - 8):
            raise ValueError(
                f"{path}: header must end inside the file and have at most {MAX_HEADER} bytes, got a length of "
                f"{length} in {size} bytes{instead_of_weights(read_at(fd, 0, min(size, 64), path))}"
            )
        head = read_at(fd, 0, 8 + length, path)
    data = parse_json(head[8:], path)
    metadata = data.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError(f"{path}: __metadata__ must map words to words, got {metadata!r:.80}")
    tensors = [(name, _entry(path, name, entry, len(head), size)) for name, entry in data.items()]
    tensors.sort(key=lambda pair: (pair[1].offset, pair[1].size))
    at = len(head)
    for name, tensor in tensors:
        if tensor.offset != at:
            what = "overlap the one before" if tensor.offset < at else "follow the one before without a hole"
            raise ValueError(f"{path}: {name}: its bytes must {what.replace('overlap', 'not overlap')}")
        at += tensor.size
    if at != size:
        raise ValueError(f"{path}: must end with its last tensor, at byte {at}, and has {size}")
    return SafetensorsFile(path, dict(tensors), metadata, head)


def _entry(path: Path, name: str, entry: Any, start: int, size: int) -> Stored:
    try:
        dtype, shape, begin, length = _checked(entry, start, size)
    except ValueError as error:
        raise ValueError(f"{path}: {name[:200]}: {error}") from None
    return Stored(dtype, shape, path, start + begin, length)


def _checked(entry: Any, start: int, size: int) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape, first byte and length; ``ValueError`` says what is wrong with them."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"must have dtype, shape and data_offsets, got {entry!r:.80}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"dtype must be one of {', '.join(BITS)}, got {dtype!r:.40}")
    if not _whole(shape) or len(shape) > 64:
        raise ValueError(f"shape must be a list of sizes from 0, got {shape!r:.80}")
    if not _whole(offsets) or len(offsets) != 2 or offsets[0] > offsets[1] or start + offsets[1] > size:
        raise ValueError(f"data_offsets must be [begin, end] inside the file, got {offsets!r:.80}")
    if (length := offsets[1] - offsets[0]) != (needed := bytes_of(dtype, shape)):
        raise ValueError(f"{dtype} {shape} needs {needed} bytes, and its data_offsets hold {length}")
    return dtype, tuple(shape), offsets[0], length


def _whole(values: Any) -> bool:
    """Whether these are whole numbers from 0 that a file could have."""
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def write_header(tensors: Sequence[tuple[str, str, Sequence[int], int]], metadata: Mapping[str, str]) -> bytes:
    """The head of a file whose tensors ``(name, dtype, shape, bytes)`` follow one another in this order."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
