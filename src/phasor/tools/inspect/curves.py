"""Curves over the distance of two tokens: the mean cosine of the pairs, RoFormer's bound, the first negative value."""

import torch
from torch import Tensor

from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec


def decay(spec: RotarySpec, distances: Tensor, seq_len: int | None = None, axis: int | None = None) -> Tensor:
    """``g(d) = mean over pairs of cos(d theta_i)``, float64, for ``distances`` of any shape.

    It is the expected score of two equal random vectors at that distance, as a share of that at distance 0. It falls
    at first and is no bound. (RoFormer, section 3.4.3; "Base of RoPE bounds context length", arXiv:2405.14591.)
    With several coordinates they are apart by ``d`` in all of them, or in ``axis`` alone, where the pairs of the other
    axes stand still. Where the members of a pair rotate by angles of their own, the mean is over both.

    >>> decay(RotarySpec(head_dim=4), torch.tensor([0])).tolist()
    [1.0]
    """
    apart = _apart(spec, distances, seq_len, axis)
    cos = apart.cos if apart.second is None else (apart.cos + apart.second[0]) / 2
    return cos.mean(-1).reshape(distances.shape) / apart.magnitude


def decay_bound(spec: RotarySpec, distances: Tensor, seq_len: int | None = None) -> Tensor:
    """RoFormer's upper bound ``(1 / P) sum_j |S_j|``, ``S_j = sum_{i < j} exp(i d theta_i)`` (eq. 35-37).

    >>> decay_bound(RotarySpec(head_dim=128), torch.tensor([0])).tolist()  # (1 + … + 64) / 64
    [32.5]
    """
    apart = _apart(spec, distances, seq_len, None)
    bound = torch.hypot(apart.cos.cumsum(-1), apart.sin.cumsum(-1)).mean(-1)
    return bound.reshape(distances.shape) / apart.magnitude


def first_negative(spec: RotarySpec, seq_len: int | None, below: int, chunk: int = 2**14) -> int | None:
    """The smallest integer distance below ``below`` at which `decay` is negative, or None.

    >>> first_negative(RotarySpec(head_dim=128), None, 4096)  # published for base 10000, 128 channels
    1707
    """
    if 2 * int((spec.inv_freq(seq_len) == 0).sum()) >= spec.pairs:
        return None  # the pairs that stand still, each with a cosine of 1, outweigh the others
    for start in range(0, below, chunk):
        negative = (decay(spec, torch.arange(start, min(start + chunk, below)), seq_len) < 0).nonzero()
        if len(negative):
            return start + int(negative[0])
    return None


def _apart(spec: RotarySpec, distances: Tensor, seq_len: int | None, axis: int | None) -> Rotation:
    """The rotation, in float64, by flat ``distances`` along every axis or one."""
    at = distances.flatten()
    if spec.axes.count > 1:
        moved = torch.tensor([axis in (None, a) for a in range(spec.axes.count)])
        at = at * moved.unsqueeze(-1)
    return Rotation.at(spec.replace(angles="exact", learned=False), at, seq_len or 1, dtype=torch.float64)
