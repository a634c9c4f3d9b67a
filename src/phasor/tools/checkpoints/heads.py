"""The weights of every head of q or k as numbers, with their scales and gains: what scores and smoothness see."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from ...models.weights import Piece
from .opening import opened, read_at
from .qk_tensors import Attention
from .quantized import row_scales
from .stored import BLOCKS, TORCH, Stored, Tensor
from .stream import load

Floats = npt.NDArray[np.float64]


def pieces_of(attention: Attention, kind: str, role: str) -> list[Piece]:
    """The pieces of ``"q"`` or ``"k"``: those that hold both, too."""
    return [p for p in attention.pieces if p.kind in (kind, "qk") and p.role == role]


def heads_of(attention: Attention, tensors: Mapping[str, Tensor], kind: str) -> Iterator[Floats]:
    """``[channels that turn, columns]`` of every head in turn; nothing where there are no whole rows of it."""
    for piece in pieces_of(attention, kind, "weight"):
        if piece.axis != 0:
            continue
        tensor = tensors[piece.tensor]
        read: Callable[[slice], Floats] = (
            partial(rows_of, tensor) if isinstance(tensor, Stored) else values_of(tensor).__getitem__
        )
        scales = [values_of(tensors[name]) for name in row_scales(piece.tensor, tensors)]
        for start in piece.starts:
            rows = slice(start, start + piece.width)
            weight = read(rows).reshape(piece.width, -1)
            for scale in scales:
                weight = weight * _spread(scale, rows, tensor.shape[0], weight.shape[1])
            yield weight


def gains_of(
    attention: Attention, tensors: Mapping[str, Tensor], kind: str, heads: int, *, bias: bool = False
) -> Floats | None:
    """``[heads, channels that turn]`` of the norm's weight or bias, each repeated for the heads that share it."""
    found = []
    for piece in pieces_of(attention, kind, "norm"):
        if piece.tensor.endswith(".bias") == bias:
            values = values_of(tensors[piece.tensor])
            found += [values[..., s : s + piece.width].reshape(-1, piece.width) for s in piece.starts]
    if not found:
        return None
    gains = np.concatenate(found)
    return gains[np.arange(heads) * len(gains) // heads]


def _spread(scales: Floats, rows: slice, count: int, columns: int) -> Floats:
    """A scale for each of some rows and columns, of ``count`` rows in all."""
    scales = scales.reshape(len(scales) if scales.ndim else 1, -1)
    picked = scales[np.arange(rows.start, rows.stop) // _side(count, len(scales))]
    return picked[:, np.arange(columns) // _side(columns, scales.shape[1])]


def _side(count: int, scales: int) -> int:
    """How many rows or columns share a scale: all, one, or a block, of which the last may be cut off.

    >>> _side(576, 1), _side(576, 576), _side(576, 4), _side(576, 5)
    (576, 1, 144, 128)
    """
    side = -(-count // scales)
    return side if count % scales == 0 else 1 << (side - 1).bit_length()


def rows_of(tensor: Stored, rows: slice) -> Floats:
    """Some rows of a tensor in float64, read from the file."""
    row = tensor.size // tensor.shape[0]
    with opened(tensor.file) as fd:
        data = read_at(fd, tensor.offset + rows.start * row, (rows.stop - rows.start) * row, tensor.file)
    return as_floats(np.frombuffer(data, np.uint8), tensor.dtype).reshape(rows.stop - rows.start, *tensor.shape[1:])


def values_of(tensor: Tensor) -> Floats:
    """A whole tensor in float64."""
    return as_floats(load(tensor).reshape(-1), tensor.dtype).reshape(tensor.shape)


def as_floats(data: npt.NDArray[np.uint8], dtype: str) -> Floats:
    """Raw bytes as numbers in float64."""
    if not data.size:
        return np.empty(0)
    if dtype.startswith(BLOCKS):
        from gguf import GGMLQuantizationType, dequantize

        return dequantize(data, GGMLQuantizationType[dtype.removeprefix(BLOCKS)]).astype(np.float64)
    return torch.from_numpy(np.array(data)).view(TORCH[dtype]).double().numpy()
