"""GGUF files: a header checked before anything is believed, and a copy with other keys and the same tensors.

Arrays of metadata are passed over, not built.

Source: github.com/ggml-org/ggml, ``docs/gguf.md``; codes of types and sizes of blocks: the ``gguf`` package.
"""

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ....support.regular_files import opened
from ..opening import instead_of_weights, read_at
from ..output import Range, write_all, write_segment
from ..stored import BLOCKS, Stored

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
PLAIN = {"F32": "F32", "F16": "F16", "BF16": "BF16", "F64": "F64", "I8": "I8", "I16": "I16", "I32": "I32", "I64": "I64"}
MAX_HEADER = 2**28


@dataclass(frozen=True)
class GgufFile:
    """One GGUF file: ``metadata``, where an array is None; ``pairs``: key -> its bytes, with those of its value."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    pairs: Mapping[str, bytes]
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

    def value(self, key: str) -> Any:
        """The value of a key of the metadata; None for an array."""
        kind = self.number("I")
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise ValueError(f"{self.path}: {key:.80}: must have a known type, got {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            self.take(count * struct.calcsize(f"<{SCALARS[inner]}"))
        elif inner == STRING and count <= len(self.data) // 8:
            for _ in range(count):
                self.take(self.number("Q"))
        else:
            raise ValueError(
                f"{self.path}: {key:.80}: an array must hold numbers or texts that fit, got {count} of type {inner}"
            )
        return None


def check_package() -> None:
    if find_spec("gguf") is None:
        raise ValueError("GGUF files need the package gguf; install it with: pip install 'phasor-rope[gguf]'")


def read_header(path: Path) -> GgufFile:
    """Raises ``ValueError`` naming file, tensor and rule for anything that the format does not allow."""
    check_package()
    with opened(path) as fd:
        size = os.fstat(fd).st_size
        data = read_at(fd, 0, min(size, MAX_HEADER), path)
    cursor = _Cursor(data, path)
    if cursor.take(4) != MAGIC or cursor.number("I") not in VERSIONS:
        instead = instead_of_weights(data)
        raise ValueError(f"{path}: must begin with GGUF and version 2 or 3, in this machine's byte order{instead}")
    tensors, pairs = cursor.number("Q"), cursor.number("Q")
    if max(tensors, pairs) > len(data) // 12:
        raise ValueError(f"{path}: cannot hold {tensors} tensors and {pairs} values in {size} bytes")
    metadata: dict[str, Any] = {}
    raw: dict[str, bytes] = {}
    for _ in range(pairs):
        start = cursor.at
        key = cursor.text()
        if key in metadata:
            raise ValueError(f"{path}: {key:.80}: stands twice in the metadata")
        metadata[key] = cursor.value(key)
        raw[key] = data[start : cursor.at]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 2**20:
        raise ValueError(f"{path}: general.alignment must be a power of two, got {alignment!r:.40}")
    abouts = [_about(cursor) for _ in range(tensors)]
    first = -(-cursor.at // alignment) * alignment
    stored: dict[str, Stored] = {}
    end = 0
    for name, dtype, shape, offset, length in abouts:
        if name in stored:
            raise ValueError(f"{path}: {name:.80}: stands twice")
        if offset % alignment or offset < end or first + offset + length > size:
            raise ValueError(
                f"{path}: {name:.80}: its bytes must follow the tensor before at a multiple of {alignment} and end "
                f"inside the file, got {length} at {offset}"
            )
        stored[name] = Stored(dtype, shape, path, first + offset, length)
        end = offset + length
    return GgufFile(path, metadata, stored, raw, alignment)


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
    pairs: Mapping[str, bytes], tensors: list[tuple[str, str, tuple[int, ...], int]], alignment: int
) -> bytes:
    """The head of a file whose tensors ``(name, dtype, shape, bytes)`` follow one another, each at the alignment."""
    from gguf import GGMLQuantizationType

    head = MAGIC + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs.values())
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


def keys_of(path: Path) -> tuple[str, dict[str, Any]]:
    """The architecture of a file, and its keys about that architecture without the name before them."""
    metadata = read_header(path).metadata
    arch = str(metadata.get("general.architecture", ""))
    return arch, {key.removeprefix(f"{arch}."): v for key, v in metadata.items() if key.startswith(f"{arch}.")}


def rekey(source: Path, target: Path, changes: Mapping[str, str | int | float]) -> None:
    """Copy ``source`` to ``target`` with the keys ``changes`` set; tensors and other keys stay as they are.

    Keys stand without the name of the architecture. Raises ``ValueError`` where the target exists.
    """
    if target.exists():
        raise ValueError(f"{str(target)!r} exists; a GGUF file is never written over")
    file = read_header(source)
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise ValueError(f"{source}: general.architecture must be the name of a model, got {arch!r:.60}")
    changed = {f"{arch}.{key}": pair(f"{arch}.{key}", value) for key, value in changes.items()}
    pairs = {key: data for key, data in file.pairs.items() if key not in changed} | changed
    abouts = [(name, t.dtype, t.shape, t.size) for name, t in file.tensors.items()]
    with open(target, "xb", buffering=0) as out:
        write_all(out.fileno(), write_header(pairs, abouts, file.alignment), lambda done: None)
        for tensor in file.tensors.values():
            write_segment(out.fileno(), Range(tensor.file, tensor.offset, tensor.size), lambda done: None)
            write_all(out.fileno(), b"\0" * (-tensor.size % file.alignment), lambda done: None)
