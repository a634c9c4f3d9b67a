"""The bytes of a tensor whose indices take another order, by numpy: a plan does without, and starts sooner."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...support.regular_files import opened
from .opening import read_at
from .qk_tensors import Move
from .stored import Stored, Tensor

Bytes = npt.NDArray[np.uint8]
Read = Callable[[Stored], bytes]


def reordered(
    tensor: Tensor, move: Move | None, part: tuple[int, int, int] | None = None, read: Read | None = None
) -> Bytes:
    """The bytes of a tensor in its new order; ``part`` as in `Reordered`, ``read`` as in `load`."""
    whole = load(tensor, read)
    if move is not None:
        if whole.shape[move.axis] != len(move.order):
            raise ValueError(
                f"{tensor.parts[0].file}: elements of {tensor.dtype} that share bytes cannot change places"
            )
        whole = np.take(whole, move.order, axis=move.axis)
    if part is not None:
        whole = np.split(whole, part[2], axis=part[0])[part[1]]
    return np.ascontiguousarray(whole).reshape(-1)


def load(tensor: Tensor, read: Read | None = None) -> Bytes:
    """A whole tensor as bytes: its shape, and one more axis for the bytes of an element; ``read`` gives those of a
    part."""
    loaded = [_shaped(part, (read or _read)(part)) for part in tensor.parts]
    return loaded[0] if len(loaded) == 1 else np.concatenate(loaded, axis=tensor.axis)


def _read(part: Stored) -> bytes:
    with opened(part.file) as fd:
        return read_at(fd, part.offset, part.size, part.file)


def _shaped(part: Stored, held: bytes) -> Bytes:
    data = np.frombuffer(held, dtype=np.uint8)
    if not math.prod(part.shape):
        return data.reshape(*part.shape, 0)
    shared = part.size % math.prod(part.shape)  # then rows are whole blocks, which hold several elements
    return data.reshape(*part.shape[:-1], -1) if shared else data.reshape(*part.shape, -1)
