"""The header of one GGUF file, checked before anything is believed; arrays of metadata are passed over, not built.

Source: github.com/ggml-org/ggml, ``docs/gguf.md``; codes of types and sizes of blocks: the ``gguf`` package.
"""

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..opening import opened, read_at
from ..stored import BLOCKS, Stored

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
PLAIN = {"F32": "F32", "F16": "F16", "BF16": "BF16", "F64": "F64", "I8": "I8", "I16": "I16", "I32": "I32", "I64": "I64"}
MAX_HEADER = 2**28


@dataclass(frozen=True)
class File:
    """One GGUF file: ``metadata`` without arrays; ``pairs``: the bytes of all metadata, and their number."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    pairs: bytes
    count: int
    alignment: int


class _Cursor:
    """Reads on in the header; every length is checked against what is left."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError(f"{self.path}: header must end inside the file, and asks for {size} bytes at {self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: a name at byte {self.at} is not UTF-8: {error}") from None

    def value(self, kind: int) -> Any:
        """A value of the metadata; None for an array."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise ValueError(f"{self.path}: a value must have a known type, got {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            self.take(count * struct.calcsize(f"<{SCALARS[inner]}"))
        elif inner == STRING and count <= len(self.data) // 8:
            for _ in range(count):
                self.take(self.number("Q"))
        else:
            raise ValueError(f"{self.path}: an array must hold numbers or texts that fit, got {count} of type {inner}")
        return None


def read_header(path: Path) -> File:
    """Raises ``ValueError`` naming file, tensor and rule for anything that the format does not allow."""
    with opened(path) as fd:
        size = os.fstat(fd).st_size
        data = read_at(fd, 0, min(size, MAX_HEADER), path)
    cursor = _Cursor(data, path)
    if cursor.take(4) != MAGIC or cursor.number("I") not in VERSIONS:
        raise ValueError(f"{path}: must begin with GGUF and version 2 or 3, in this machine's byte order")
    tensors, pairs = cursor.number("Q"), cursor.number("Q")
    if max(tensors, pairs) > len(data) // 12:
        raise ValueError(f"{path}: cannot hold {tensors} tensors and {pairs} values in {size} bytes")
    start, metadata = cursor.at, {}
    for _ in range(pairs):
        key = cursor.text()
        if key in metadata:
            raise ValueError(f"{path}: {key:.80}: stands twice in the metadata")
        metadata[key] = cursor.value(cursor.number("I"))
    kept = data[start : cursor.at]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 2**20:
        raise ValueError(f"{path}: general.alignment must be a power of two, got {alignment!r:.40}")
    abouts = [_about(cursor) for _ in range(tensors)]
    first = -(-cursor.at // alignment) * alignment
    found: dict[str, Stored] = {}
    end = 0
    for name, dtype, shape, offset, length in abouts:
        if name in found:
            raise ValueError(f"{path}: {name:.80}: stands twice")
        if offset % alignment or offset < end or first + offset + length > size:
            raise ValueError(
                f"{path}: {name:.80}: its bytes must follow the tensor before at a multiple of {alignment} and end "
                f"inside the file, got {length} at {offset}"
            )
        found[name] = Stored(dtype, shape, path, first + offset, length)
        end = offset + length
    return File(path, metadata, found, kept, pairs, alignment)


def _about(cursor: _Cursor) -> tuple[str, str, tuple[int, ...], int, int]:
    """Name, dtype, shape with rows first, offset and bytes of one tensor."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    name, axes = cursor.text(), cursor.number("I")
    if axes > 4:
        raise ValueError(f"{cursor.path}: {name:.80}: must have at most 4 axes, got {axes}")
    shape = tuple(cursor.number("Q") for _ in range(axes))[::-1]
    code, offset = cursor.number("I"), cursor.number("Q")
    try:
        kind = GGMLQuantizationType(code)
    except ValueError:
        raise ValueError(f"{cursor.path}: {name:.80}: must have a known type, got {code}") from None
    per_block, size = GGML_QUANT_SIZES[kind]
    count = math.prod(shape)
    if count >= 2**60 or (shape and shape[-1] % per_block):
        raise ValueError(f"{cursor.path}: {name:.80}: rows must be whole blocks of {per_block}, got {list(shape)}")
    return name, PLAIN.get(kind.name, BLOCKS + kind.name), shape, offset, count // per_block * size


def write_header(
    pairs: bytes, count: int, tensors: list[tuple[str, str, tuple[int, ...], int]], alignment: int
) -> bytes:
    """The head of a file whose tensors ``(name, dtype, shape, bytes)`` follow one another, each at the alignment."""
    from gguf import GGMLQuantizationType

    head = MAGIC + struct.pack("<IQQ", 3, len(tensors), count) + pairs
    at = 0
    for name, dtype, shape, size in tensors:
        code = GGMLQuantizationType[dtype.removeprefix(BLOCKS)]
        head += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], code, at)
        at += -(-size // alignment) * alignment
    return head + b"\0" * (-len(head) % alignment)


def string(text: str) -> bytes:
    """A text as GGUF holds it."""
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pair(key: str, value: str | int | float) -> bytes:
    """One value of the metadata: a text, a whole number, or a number in float32."""
    if isinstance(value, str):
        return string(key) + struct.pack("<I", STRING) + string(value)
    return string(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))
