"""Attention scores of random activations through the q and k of a checkpoint, rotated as its layout says, in float64.

Of every head only the channels that turn are formed: the others stay byte for byte. A norm's gain is applied, and the
factor that all its channels share is not. Rotation is a product of complex numbers, written here once more.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from ..layout import Layout
from ..weights import Piece
from .following import Attention
from .opening import opened, read_at
from .permutation import turned
from .quantized import ROW_SCALES
from .stored import BLOCKS, Stored, Tensor
from .stream import load

TORCH = {
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "U8": torch.uint8,
    "I8": torch.int8, "BOOL": torch.bool,
}  # fmt: skip
POSITIONS = (0, 1, 7, 1000)
Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]
Side = tuple[Mapping[str, Tensor], Layout]


def score_difference(attention: Attention, first: Side, second: Side) -> float | None:
    """The largest difference of any score, as a share of the largest score; None if q or k cannot be formed.

    That is so where an attention takes its keys from another, and where weights are not finite.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scores = [_scores(attention, *side) for side in (first, second)]
    if any(s is None or not np.isfinite(s).all() for s in scores):
        return None
    a, b = scores
    assert a is not None and b is not None
    return float(abs(a - b).max() / max(abs(a).max(), 1e-300))


def _scores(attention: Attention, tensors: Mapping[str, Tensor], layout: Layout) -> Floats | None:
    """``[heads of q, positions, positions]``."""
    inside = turned(layout)
    q, k = (_heads(attention, tensors, inside, kind) for kind in ("q", "k"))
    if q is None or k is None:
        return None
    angles = np.outer(np.array(POSITIONS, np.float64), attention.spec.inv_freq().numpy())
    wheel = np.exp((-1j if attention.spec.reverse else 1j) * angles)
    q, k = q * wheel, k * wheel
    k = k[np.arange(len(q)) * len(k) // len(q)]
    return np.einsum("hmp,hnp->hmn", q, k.conj()).real


def _heads(attention: Attention, tensors: Mapping[str, Tensor], layout: Layout, kind: str) -> Complexes | None:
    """``[heads, positions, pairs]``: the pairs of every head as complex numbers, before the rotation."""
    mine = [p for p in attention.pieces if p.kind in (kind, "qk")]
    formed = [_formed(p, tensors) for p in mine if p.role == "weight" and p.axis == 0]
    if not formed:
        return None
    x = np.concatenate(formed)
    for piece in (p for p in mine if p.role == "bias"):
        values = values_of(tensors[piece.tensor])
        x += np.stack([values[s : s + piece.width] for s in piece.starts])[:, None]
    for shift in (False, True):
        given = [_gains(p, tensors) for p in mine if p.role == "norm" and p.tensor.endswith(".bias") == shift]
        if given:
            gain = np.concatenate(given)
            gain = gain[np.arange(len(x)) * len(gain) // len(x)][:, None]
            x = x + gain if shift else x * gain
    a, b = layout.split(torch.from_numpy(x))
    return a.numpy() + 1j * b.numpy()


def _formed(piece: Piece, tensors: Mapping[str, Tensor]) -> Floats:
    """Random activations through the rows of every head: ``[heads, positions, width]``."""
    tensor = tensors[piece.tensor]
    read: Callable[[slice], Floats] = (
        partial(rows_of, tensor) if isinstance(tensor, Stored) else values_of(tensor).__getitem__
    )
    scales = _scales(piece.tensor, tensors)
    columns = int(np.prod(tensor.shape[1:]))
    x = np.random.default_rng(columns).standard_normal((columns, len(POSITIONS)))
    found = []
    for start in piece.starts:
        rows = slice(start, start + piece.width)
        weight = read(rows).reshape(piece.width, columns)
        if scales is not None:
            weight = weight * _spread(*scales, rows, columns)
        found.append((weight @ x).T)
    return np.stack(found)


def _gains(piece: Piece, tensors: Mapping[str, Tensor]) -> Floats:
    values = values_of(tensors[piece.tensor])
    return np.concatenate([values[..., s : s + piece.width].reshape(-1, piece.width) for s in piece.starts])


def _scales(name: str, tensors: Mapping[str, Tensor]) -> tuple[Floats, int] | None:
    """The scales of a quantized weight, and its number of rows; None where there are none."""
    for ending in ROW_SCALES:
        if (scale := tensors.get(name.removesuffix(".weight") + ending)) is not None:
            return values_of(scale).reshape(*scale.shape[:2] or (1,), -1), tensors[name].shape[0]
    return None


def _spread(values: Floats, count: int, rows: slice, columns: int) -> Floats:
    """A scale for each of some rows and columns, of ``count`` rows in all."""
    values = values.reshape(len(values), -1)
    side = -(-count // len(values))  # one for all, one for each, or one for each block
    wide = -(-columns // values.shape[1])
    picked = values[np.arange(rows.start, rows.stop) // side]
    return picked if values.shape[1] == 1 else np.repeat(picked, wide, axis=1)[:, :columns]


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
