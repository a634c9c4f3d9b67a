"""The bytes of a tensor whose indices take another order, by numpy: a plan does without, and starts sooner."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...support.regular_files import opened
from .opening import read_at
from .qk_tensors import Move
from .stored import Stored, Tensor

BLOCK = 2**20  # stays in cache while its rows change places
Bytes = npt.NDArray[np.uint8]
Order = npt.NDArray[np.int64]


def blocks(tensor: Tensor, move: Move | None, part: tuple[int, int, int] | None = None) -> Iterator[Bytes]:
    """The bytes of a tensor in its new order, in blocks that hold whole groups of indices that change places.

    ``part``: as in `Reordered`.
    """
    if isinstance(tensor, Stored) and part is None and move is not None:
        yield from _stored_blocks(tensor, move.axis, np.asarray(move.order))
        return
    whole = load(tensor)
    if move is not None:
        whole = np.take(whole, move.order, axis=move.axis)
    if part is not None:
        whole = np.split(whole, part[2], axis=part[0])[part[1]]
    yield np.ascontiguousarray(whole).reshape(-1)


def load(tensor: Tensor) -> Bytes:
    """A whole tensor as bytes: its shape, and one more axis for the bytes of an element."""
    loaded = []
    for part in tensor.parts:
        with opened(part.file) as fd:
            data = np.frombuffer(read_at(fd, part.offset, part.size, part.file), dtype=np.uint8)
        loaded.append(data.reshape(*part.shape, -1) if part.size else data.reshape(*part.shape, 0))
    return loaded[0] if len(loaded) == 1 else np.concatenate(loaded, axis=tensor.axis)


def _stored_blocks(tensor: Stored, axis: int, order: Order) -> Iterator[Bytes]:
    """A few heads at a time along the first axis, a few rows at a time along the others."""
    count = len(order)
    outer = 1
    for size in tensor.shape[:axis]:
        outer *= size
    row = tensor.size // (outer * count) if outer else 0
    if tensor.size != outer * count * row or not row:
        raise ValueError(f"{tensor.file}: elements of {tensor.dtype} that share bytes cannot change places")
    cuts = groups(order, max(1, BLOCK // row))
    with opened(tensor.file) as fd:
        if outer == 1:
            for first, last in cuts:
                data = read_at(fd, tensor.offset + first * row, (last - first) * row, tensor.file)
                yield np.frombuffer(data, np.uint8).reshape(last - first, row)[order[first:last] - first].reshape(-1)
            return
        step = max(1, BLOCK // (count * row))
        for start in range(0, outer, step):
            rows = min(step, outer - start)
            data = read_at(fd, tensor.offset + start * count * row, rows * count * row, tensor.file)
            yield np.frombuffer(data, np.uint8).reshape(rows, count, row)[:, order].reshape(-1)


def groups(order: Order, most: int) -> list[tuple[int, int]]:
    """Stretches of indices that only change places among themselves, joined up to about ``most`` of them.

    >>> groups(np.array([1, 0, 2, 4, 3]), 2)
    [(0, 2), (2, 3), (3, 5)]
    """
    ends = np.flatnonzero(np.maximum.accumulate(order) == np.arange(len(order))) + 1
    ranges: list[tuple[int, int]] = []
    first = 0
    for i, end in enumerate(ends):
        if i + 1 == len(ends) or ends[i + 1] - first > most:
            ranges.append((first, int(end)))
            first = int(end)
    return ranges
