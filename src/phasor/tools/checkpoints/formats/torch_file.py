"""Files of ``torch.save``: tensors found without loading them; written by torch."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ....support.errors import first_line
from ....support.regular_files import opened
from ..opening import size_of
from ..output import Range, Reordered, Segment
from ..reordering import Bytes, reordered
from ..stored import Stored
from ..torch_types import TORCH, WORDS

MAX_PICKLE = 100 * 2**20
About = tuple[str, tuple[int, ...]]  # dtype and shape


def save(segments: Mapping[str, Segment], abouts: Mapping[str, About], path: Path) -> None:
    """One file by ``torch.save``, of the bytes, dtype and shape of each name. It wants all tensors at once: those that
    stay are mapped, those that move are in memory."""
    torch.save({name: _tensor(segment, *abouts[name]) for name, segment in segments.items()}, path)


def _tensor(segment: Segment, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    if isinstance(segment, Range):
        data: Bytes = np.memmap(segment.file, np.uint8, "c", segment.offset, (segment.size,))
    else:
        assert isinstance(segment, Reordered)
        data = np.array(reordered(segment.tensor, segment.move, segment.part))  # torch wants what may be written
    return torch.from_numpy(data).view(TORCH[dtype]).reshape(shape)


def read_pickled(path: Path) -> Mapping[str, Stored]:
    """Name -> where its bytes are. Nothing is unpickled but what torch's ``weights_only`` allows, and nothing loaded.

    Raises ``ValueError`` for a file in the format before torch 1.6, which has no offsets, for anything in it that is
    not a dictionary of plain tensors, and for tensors that are not stored row by row.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    check_archive(path)
    try:
        with FakeTensorMode():
            data: Any = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # whatever torch's reader raises for damaged bytes
        raise ValueError(f"{path}: cannot be read through torch's weights_only: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: must hold a dictionary of tensors, got {type(data).__name__}")
    size = size_of(path)
    return {name: _stored(path, name, tensor, size) for name, tensor in data.items()}


def check_archive(path: Path) -> None:
    """The pickle inside must be small, and the archive not compressed: nothing is read that could grow."""
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        try:
            infos = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise ValueError(
                f"{path}: must be an archive as torch.save has written since version 1.6, and is not ({error}); "
                "load it and save it again"
            ) from None
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"{path}: {info.filename:.80}: must be stored without compression or encryption")
        if info.filename.endswith("data.pkl") and info.file_size > MAX_PICKLE:
            raise ValueError(f"{path}: {info.filename:.80}: must have at most {MAX_PICKLE} bytes, got {info.file_size}")


def _stored(path: Path, name: Any, tensor: Any, size: int) -> Stored:
    where = f"{path}: {str(name)[:200]}"
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{where}: must be a tensor under a name, got {type(tensor).__name__}")
    if tensor.dtype not in WORDS or tensor.layout != torch.strided or not tensor.is_contiguous():
        raise ValueError(f"{where}: must be a plain tensor stored row by row, got {tensor.dtype} {tensor.layout}")
    start = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if start is None:
        raise ValueError(f"{where}: torch does not say where its bytes are")
    offset = start + tensor.storage_offset() * tensor.element_size()
    length = tensor.numel() * tensor.element_size()
    if offset + length > size:
        raise ValueError(f"{where}: its bytes must end inside the file, at {size}, got {offset + length}")
    return Stored(WORDS[tensor.dtype], tuple(tensor.shape), path, offset, length)
