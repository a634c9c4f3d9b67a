"""Tensors where they lie: in one range of one file, or in several that are joined. Nothing is loaded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

# safetensors' words for data types -> bits of one element
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
BLOCKS = "GGML_"  # before the name of a type of GGUF whose rows are blocks
FLOATS = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F16", "BF16", "F32", "F64")


@dataclass(frozen=True)
class Stored:
    """A tensor in one range of a file: ``size`` bytes from ``offset``, rows first, without gaps."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    size: int

    @property
    def parts(self) -> "tuple[Stored, ...]":
        return (self,)

    @property
    def axis(self) -> int:
        return 0


@dataclass(frozen=True)
class Joined:
    """A tensor whose parts, of one dtype, lie in several ranges and follow one another along ``axis``."""

    parts: tuple[Stored, ...]
    axis: int

    @property
    def dtype(self) -> str:
        return self.parts[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        first, axis = self.parts[0].shape, self.axis
        return (*first[:axis], sum(part.shape[axis] for part in self.parts), *first[axis + 1 :])

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


Tensor = Stored | Joined


def place_of(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
    """For errors: the file that holds a tensor, or the first part of it, and the tensor; of a live model its folder."""
    return f"{file_of(folder, name, tensors)}: {name}"


def file_of(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> Path:
    """For errors: the file that holds a tensor, or would: one that is missing belongs where its neighbours are."""
    words = name.split(".")

    def shared(other: str) -> int:
        """Leading words that two names have in common."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, other.split("."), strict=False)))

    file = tensors[name if name in tensors else max(tensors, key=shared)].parts[0].file
    return folder if file == Path() else file


def join(parts: Sequence[Stored], axis: int, name: str) -> Tensor:
    """One tensor of parts that must fit; ``ValueError`` names the file of one that does not."""
    first = parts[0]
    for part in parts:
        alike = part.dtype == first.dtype and len(part.shape) == len(first.shape) > axis
        if not alike or any(a != b for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True)) if i != axis):
            raise ValueError(
                f"{part.file}: {name}: must have dtype and shape of the part in {first.file.name} ({first.dtype} "
                f"{list(first.shape)}) beside axis {axis}, got {part.dtype} {list(part.shape)}"
            )
    return first if len(parts) == 1 else Joined(tuple(parts), axis)


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """The bytes of a tensor; ``ValueError`` where its bits do not fill them.

    >>> bytes_of("BF16", (2, 3))
    12
    """
    bits = BITS[dtype] * math.prod(shape)
    if bits % 8:
        raise ValueError(f"{dtype} {list(shape)} has {bits} bits, which fill no whole bytes")
    return bits // 8
