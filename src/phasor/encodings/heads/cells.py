"""The cells (start, end) of the square of spans: which ones exist, and their scores from factors."""

from typing import NamedTuple

import torch
from torch import Tensor


def sentences(mask: Tensor | None, hidden: Tensor) -> Tensor:
    """The mask as int64 ``[B, S]``: 0 where there is no token, else the number of its sentence (1 without a mask)."""
    shape = hidden.shape[:2]
    if mask is None:
        return torch.ones(shape, dtype=torch.int64, device=hidden.device)
    if mask.shape != shape or mask.is_floating_point() or mask.is_complex():
        raise ValueError(
            f"mask must be booleans or integers [batch, seq] = {list(shape)}, 0 where there is no token, "
            f"got {mask.dtype} {list(mask.shape)}"
        )
    return mask.to(hidden.device, torch.int64)


def valid_cells(sentence: Tensor, tril: bool, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
    """True where both ends are tokens of one sentence, and in order if ``tril``: ``[B, 1, rows, columns]``.

    >>> valid_cells(torch.tensor([[1, 1, 0]]), tril=True)[0, 0].int().tolist()
    [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    """
    start, end = sentence[:, None, rows, None], sentence[:, None, None, columns]
    cells = (start == end) & (start != 0)
    if tril:
        index = torch.arange(sentence.shape[-1], device=sentence.device)
        cells = cells & (index[rows, None] <= index[columns])
    return cells


def check_spans(spans: Tensor, sentence: Tensor, num_types: int, tril: bool) -> Tensor:
    """``spans`` without repetitions; ``ValueError`` for the first row that is not (batch, type, start, end) of a cell.

    >>> check_spans(torch.tensor([[0, 0, 2, 1]]), torch.ones(1, 4, dtype=torch.int64), 1, tril=True)
    Traceback (most recent call last):
    ValueError: spans[0] = (batch 0, type 0, start 2, end 1) ends before it starts; ...
    """
    if not isinstance(spans, Tensor) or spans.dtype != torch.int64 or spans.ndim != 2 or spans.shape[1] != 4:
        got = f"{spans.dtype} {list(spans.shape)}" if isinstance(spans, Tensor) else type(spans).__name__
        raise ValueError(f"spans must be an int64 tensor [N, 4] of rows (batch, type, start, end), got {got}")
    if not len(spans):
        return spans.to(sentence.device)
    batch, length = sentence.shape
    spans = spans.to(sentence.device)
    limits = torch.tensor([batch, num_types, length, length], device=sentence.device)
    _refuse((spans < 0) | (spans >= limits), spans, f"is outside (batch, type, start, end) < {limits.tolist()}")
    b, _, start, end = spans.T
    first, last = sentence[b, start], sentence[b, end]
    _refuse((first == 0) | (last == 0), spans, "begins or ends where mask has no token")
    _refuse(first != last, spans, "reaches from one sentence of mask into another")
    if tril:
        _refuse(start > end, spans, "ends before it starts; start and end are both inside the span")
    return spans.unique(dim=0)


def _refuse(wrong: Tensor, spans: Tensor, reason: str) -> None:
    for row in wrong.reshape(len(spans), -1).any(-1).nonzero()[:1].flatten().tolist():
        b, t, start, end = spans[row].tolist()
        raise ValueError(f"spans[{row}] = (batch {b}, type {t}, start {start}, end {end}) {reason}")


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
