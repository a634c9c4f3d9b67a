"""Attention scores of random activations through the q and k of a checkpoint, rotated as its layout says, in float64.

Of every head only the channels that turn are formed: the others stay byte for byte. A norm's gain is applied, and the
factor that all its channels share is not. Rotation is a product of complex numbers, written here once more.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from ...rotary.layout import Layout
from .heads import Floats, gains_of, heads_of, pieces_of, values_of
from .permutation import turned
from .qk_tensors import Attention
from .stored import Tensor

POSITIONS = (0, 1, 7, 1000)
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
    a, b = layout.split(torch.from_numpy(x))
    return a.numpy() + 1j * b.numpy()


@lru_cache(maxsize=8)
def _activations(columns: int) -> Floats:
    """Random ones, ``[columns, positions]``, the same for both sides."""
    return np.random.default_rng(columns).standard_normal((columns, len(POSITIONS)))
