"""Attention scores of random activations through the q and k of a checkpoint, rotated as its layout says, in float64.

Of every head only the channels that rotate are formed: the others stay byte for byte. A norm's gain is applied, and the
factor that all its channels share is not. Rotation is a product of complex numbers, written here once more.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from ...models.weights import Piece
from ...rotary.layout import Layout
from ...rotary.spec import exact_frequencies
from ...support.regular_files import opened
from .opening import read_at
from .permutation import rotated_channels
from .qk_tensors import AttentionTensors, row_scales
from .reordering import load
from .stored import BLOCKS, Stored, Tensor

POSITIONS = (0, 1, 7, 1000)
NUMPY = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]
Side = tuple[Mapping[str, Tensor], Layout]


def pieces_of(attention: AttentionTensors, kind: str, role: str) -> list[Piece]:
    """The pieces of ``"q"`` or ``"k"``: those that hold both, too."""
    return [p for p in attention.pieces if p.kind in (kind, "qk") and p.role == role]


def heads_of(attention: AttentionTensors, tensors: Mapping[str, Tensor], kind: str) -> Iterator[Floats]:
    """``[channels that rotate, columns]`` of every head in turn; nothing where there are no whole rows of it."""
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
    attention: AttentionTensors, tensors: Mapping[str, Tensor], kind: str, heads: int, *, bias: bool = False
) -> Floats | None:
    """``[heads, channels that rotate]`` of the norm's weight or bias, each repeated for the heads that share it."""
    vectors = []
    for piece in pieces_of(attention, kind, "norm"):
        if piece.tensor.endswith(".bias") == bias:
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
    if dtype == "BF16":  # the upper half of a float32
        data, dtype = (data.view(np.uint16).astype(np.uint32) << 16).view(np.uint8), "F32"
    if dtype in NUMPY:
        with np.errstate(invalid="ignore"):  # NaN of the kind that signals
            return data.view(NUMPY[dtype]).astype(np.float64)
    import torch

    from .torch_types import TORCH

    return torch.from_numpy(np.array(data)).view(TORCH[dtype]).double().numpy()


def score_difference(attention: AttentionTensors, first: Side, second: Side) -> float | None:
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


def _scores(attention: AttentionTensors, tensors: Mapping[str, Tensor], layout: Layout) -> Floats | None:
    """``[heads of q, positions, positions]``."""
    inside = rotated_channels(layout)
    q, k = (_heads(attention, tensors, inside, kind) for kind in ("q", "k"))
    if q is None or k is None:
        return None
    frequencies = [float(f) for f in exact_frequencies(attention.spec)]
    angles = np.outer(np.array(POSITIONS, np.float64), frequencies)
    wheel = np.exp((-1j if attention.spec.reverse else 1j) * angles)
    q, k = q * wheel, k * wheel
    k = k[np.arange(len(q)) * len(k) // len(q)]
    return np.einsum("hmp,hnp->hmn", q, k.conj()).real


def _heads(attention: AttentionTensors, tensors: Mapping[str, Tensor], layout: Layout, kind: str) -> Complexes | None:
    """``[heads, positions, pairs]``: the pairs of every head as complex numbers, before the rotation."""
    formed = [(weight @ _activations(weight.shape[1])).T for weight in heads_of(attention, tensors, kind)]
    if not formed:
        return None
    x = np.stack(formed)
    for piece in pieces_of(attention, kind, "bias"):
        values = values_of(tensors[piece.tensor])
        x += np.stack([values[s : s + piece.width] for s in piece.starts])[:, None]
    if (gain := gains_of(attention, tensors, kind, len(x))) is not None:
        x = x * gain[:, None]
    if (shift := gains_of(attention, tensors, kind, len(x), bias=True)) is not None:
        x = x + shift[:, None]
    first, second = np.split(np.array(layout.channels()), 2)
    return x[..., first] + 1j * x[..., second]


@lru_cache(maxsize=8)
def _activations(columns: int) -> Floats:
    """Random ones, ``[columns, positions]``, the same for both sides."""
    return np.random.default_rng(columns).standard_normal((columns, len(POSITIONS)))
