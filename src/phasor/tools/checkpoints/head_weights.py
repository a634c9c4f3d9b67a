"""The weights of q and k as numbers: the rows that rotate of every head, with their scales, and the gains of norms."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ...models.weights import Piece
from .qk_tensors import AttentionTensors, row_scales
from .reordering import load
from .stored import BLOCKS, Tensor

NUMPY = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
Floats = npt.NDArray[np.float64]


def pieces_of(attention: AttentionTensors, kind: str, role: str) -> list[Piece]:
    """The pieces of ``"q"`` or ``"k"``: those that hold both, too."""
    return [p for p in attention.pieces if p.kind in (kind, "qk") and p.role == role]


def heads_of(attention: AttentionTensors, tensors: Mapping[str, Tensor], kind: str) -> Iterator[Floats]:
    """``[channels that rotate, columns]`` of every head in turn; nothing where there are no whole rows of it."""
    for piece in pieces_of(attention, kind, "weight"):
        if piece.axis != 0:
            continue
        tensor = tensors[piece.tensor]
        held = load(tensor)
        scales = [values_of(tensors[name]) for name in row_scales(piece.tensor, tensors)]
        for start in piece.starts:
            rows = slice(start, start + piece.width)
            weight = as_floats(held[rows].reshape(-1), tensor.dtype).reshape(piece.width, -1)
            for scale in scales:
                weight = weight * _spread(scale, rows, tensor.shape[0], weight.shape[1])
            yield weight


def gains_of(attention: AttentionTensors, tensors: Mapping[str, Tensor], kind: str, heads: int) -> Floats | None:
    """``[heads, channels that rotate]`` of the norm's weight, each repeated for the heads that share it."""
    vectors = []
    for piece in pieces_of(attention, kind, "norm"):
        if not piece.tensor.endswith(".bias"):
            values = values_of(tensors[piece.tensor])
            vectors += [values[..., s : s + piece.width].reshape(-1, piece.width) for s in piece.starts]
    if not vectors:
        return None
    gains = np.concatenate(vectors)
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
    if dtype == "BF16":  # the upper half of a float32
        data, dtype = (data.view(np.uint16).astype(np.uint32) << 16).view(np.uint8), "F32"
    if dtype in NUMPY:
        with np.errstate(invalid="ignore"):  # NaN of the kind that signals
            return data.view(NUMPY[dtype]).astype(np.float64)
    import torch

    from .torch_types import TORCH

    return torch.from_numpy(np.array(data)).view(TORCH[dtype]).double().numpy()
