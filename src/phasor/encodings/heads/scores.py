"""Scores of spans from their factors: blocks of the square, and single cells."""

from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    """What the scores of each type are made of: ``s(i, j) = q_i . k_j + start_i + end_j``, float32 or float64.

    ``q`` (scaled and rotated) and ``k`` (rotated) are ``[B, num_types, S, head_dim]``, or ``[B, 1, S, head_dim]`` if
    all types share them; ``start`` and ``end`` are ``[B, num_types, S]``, or None for 0.
    """

    q: Tensor
    k: Tensor
    start: Tensor | None = None
    end: Tensor | None = None


def score_block(factors: Factors, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
    """``[B, num_types, rows, columns]``: a new tensor.

    >>> score_block(Factors(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4)), slice(0, 1)).tolist()
    [[[[4.0, 4.0]]]]
    """
    q, k, start, end = factors
    with torch.autocast(q.device.type, enabled=False):  # which would round the product to half precision
        scores = q[:, :, rows] @ k[:, :, columns].mT
    if start is None or end is None:
        return scores
    return scores + start[:, :, rows, None] + end[:, :, None, columns]


def score_spans(factors: Factors, spans: Tensor) -> Tensor:
    """``[N]``: the scores of the cells (batch, type, start, end) in the rows of ``spans``."""
    q, k, start, end = factors
    b, t, i, j = spans.T
    shared = torch.zeros_like(t) if q.shape[1] == 1 else t
    scores = (q[b, shared, i] * k[b, shared, j]).sum(-1)
    return scores if start is None or end is None else scores + start[b, t, i] + end[b, t, j]
