"""The tensors of a folder's safetensors files, by name, without loading them."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ....support.regular_files import opened
from ...checkpoints.formats.safetensors_file import SafetensorsFile, read_header
from ...checkpoints.opening import read_at
from ...checkpoints.stored import Stored

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


def headers(folder: Path) -> list[SafetensorsFile]:
    """The safetensors files of a folder."""
    return [read_header(path) for path in sorted(folder.glob("*.safetensors"))]


def tensors_in(files: list[SafetensorsFile]) -> Mapping[str, Stored]:
    """All tensors by name."""
    return {name: stored for file in files for name, stored in file.tensors.items()}


def values(stored: Stored) -> Tensor | None:
    """A small tensor of floats; None for other dtypes."""
    dtype = DTYPES.get(stored.dtype)
    if dtype is None or not math.prod(stored.shape):
        return None
    with opened(stored.file) as fd:
        data = read_at(fd, stored.offset, stored.size, stored.file)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(stored.shape)
