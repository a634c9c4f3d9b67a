"""Files of ``torch.save``: tensors found without loading them, archives laid out before their bytes are there."""

import io
import os
import pickle
import struct
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ....support.errors import first_line
from ..opening import size_of
from ..output import Output, Segment
from ..stored import Stored
from ..torch_types import TORCH

STORAGE = {
    "F16": torch.HalfStorage, "BF16": torch.BFloat16Storage, "F32": torch.FloatStorage, "F64": torch.DoubleStorage,
    "I64": torch.LongStorage, "I32": torch.IntStorage, "I16": torch.ShortStorage, "I8": torch.CharStorage,
    "U8": torch.ByteStorage, "BOOL": torch.BoolStorage,
}  # fmt: skip
LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
ALIGN, BIG = 64, 0xFFFFFFFF


class _Storage:
    """What the pickle says of a storage."""

    def __init__(self, dtype: str, key: str, count: int) -> None:
        self.id = ("storage", STORAGE[dtype], key, "cpu", count)


class _Tensor:
    """What the pickle says of a tensor."""

    def __init__(self, storage: _Storage, shape: tuple[int, ...]) -> None:
        strides = [1]
        for size in reversed(shape[1:]):
            strides.append(strides[-1] * max(size, 1))
        self.arguments: tuple[Any, ...] = (
            storage,
            0,
            shape,
            tuple(reversed(strides))[: len(shape)],
            False,
            OrderedDict(),
        )

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_tensor_v2, self.arguments


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.id if isinstance(obj, _Storage) else None


# torch.save under torch.serialization.skip_data lays out an archive as well. It is not used: it writes a file of full
# size, also for a plan that is only printed; its checksums of storages are 0, and would be put in here all the same.
def archive(name: str, tensors: Mapping[str, Segment], abouts: Mapping[str, tuple[str, tuple[int, ...]]]) -> Output:
    """One file that ``torch.load`` reads: name -> its bytes, its dtype and shape. ``ValueError`` for other dtypes."""
    held: dict[str, Any] = {}
    for i, (tensor, (dtype, shape)) in enumerate(abouts.items()):
        if dtype not in STORAGE:
            raise ValueError(f"{tensor}: {dtype} has no storage in torch's archives; write safetensors")
        count = 1
        for size in shape:
            count *= size
        held[tensor] = _Tensor(_Storage(dtype, str(i), count), shape)
    text = io.BytesIO()
    _Pickler(text, protocol=2).dump(held)
    stem = name.removesuffix(".pth")
    entries: list[tuple[str, Segment]] = [(f"{stem}/data.pkl", text.getvalue()), (f"{stem}/byteorder", b"little")]
    entries += [(f"{stem}/data/{i}", each) for i, each in enumerate(tensors.values())]
    entries.append((f"{stem}/version", b"3\n"))
    segments, places = _zip(entries)
    return Output(name, segments, partial(_sum, places))


def zip64_extras(size: int, offset: int) -> tuple[bytes, bytes]:
    """The extra fields of an entry, in front of it and in the directory; empty where 32 bits hold what they would say.

    >>> [len(extra) for extra in zip64_extras(size=BIG, offset=0)], [len(extra) for extra in zip64_extras(5, BIG)]
    ([20, 28], [0, 28])
    """
    local = struct.pack("<HHQQ", 1, 16, size, size) if size >= BIG else b""
    central = struct.pack("<HHQQQ", 1, 24, size, size, offset) if size >= BIG or offset >= BIG else b""
    return local, central


def _zip(entries: list[tuple[str, Segment]]) -> tuple[tuple[Segment, ...], list[tuple[int, int, int, int]]]:
    """The segments of the archive, and for each entry: local header, first byte, size, entry of the directory."""
    segments: list[Segment] = []
    at, directory, places = 0, b"", []
    for name, body in entries:
        size = len(body) if isinstance(body, bytes) else body.size
        wide, far = zip64_extras(size, at)
        fixed = at + LOCAL.size + len(name) + len(wide) + 4
        padding = struct.pack("<2sH", b"FB", pad := -fixed % ALIGN) + b"Z" * pad
        size_field = BIG if wide else size
        head = LOCAL.pack(b"PK\3\4", 45, 0, 0, 0, 0x21, 0, size_field, size_field, len(name), len(wide) + len(padding))
        segments += [head + name.encode() + wide + padding, body]
        size_field, start = (BIG, BIG) if far else (size, at)
        places.append((at, fixed + pad, size, len(directory)))
        directory += CENTRAL.pack(
            b"PK\1\2", 45, 45, 0, 0, 0, 0x21, 0, size_field, size_field, len(name), len(far), 0, 0, 0, 0, start
        ) + name.encode() + far  # fmt: skip
        at = fixed + pad + size
    count = len(entries)
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), at)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, at + len(directory), 1)
    end += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), len(directory),
        min(at, BIG), 0)  # fmt: skip
    segments.append(directory + end)
    return tuple(segments), [(local, first, size, at + entry) for local, first, size, entry in places]


def _sum(places: list[tuple[int, int, int, int]], fd: int) -> None:
    """Put the checksum of every entry where the archive has a place for it."""
    for local, first, size, entry in places:
        total, at = 0, first
        while at < first + size:
            data = os.pread(fd, min(2**20, first + size - at), at)
            total = zlib.crc32(data, total)
            at += len(data)
        os.pwrite(fd, total.to_bytes(4, "little"), local + 14)
        os.pwrite(fd, total.to_bytes(4, "little"), entry + 16)


DTYPES = {dtype: word for word, dtype in TORCH.items()}


def stored_tensors(path: Path) -> Mapping[str, Stored]:
    """Name -> where its bytes are, of an archive that was checked (`read_pickled` does)."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            data: Any = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # whatever torch's reader raises for damaged bytes
        raise ValueError(f"{path}: cannot be read through torch's weights_only: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: must hold a dictionary of tensors, got {type(data).__name__}")
    size = size_of(path)
    return {name: _stored(path, name, tensor, size) for name, tensor in data.items()}


def _stored(path: Path, name: Any, tensor: Any, size: int) -> Stored:
    where = f"{path}: {str(name)[:200]}"
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{where}: must be a tensor under a name, got {type(tensor).__name__}")
    if tensor.dtype not in DTYPES or tensor.layout != torch.strided or not tensor.is_contiguous():
        raise ValueError(f"{where}: must be a plain tensor stored row by row, got {tensor.dtype} {tensor.layout}")
    start = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if start is None:
        raise ValueError(f"{where}: torch does not say where its bytes are")
    offset = start + tensor.storage_offset() * tensor.element_size()
    length = tensor.numel() * tensor.element_size()
    if offset + length > size:
        raise ValueError(f"{where}: its bytes must end inside the file, at {size}, got {offset + length}")
    return Stored(DTYPES[tensor.dtype], tuple(tensor.shape), path, offset, length)
