"""Multilabel categorical cross entropy (ZLPR): dense, from lists of positive cells, and in blocks of a span head."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .cells import Factors, score_block, valid_cells

NO_CELL = float("-inf")
ROWS = 64  # per block: fewer cost more launches, more cost cells below the diagonal and memory


def multilabel_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """``log(1 + sum t e^-s) + log(1 + sum (1 - t) e^s)`` over the last dimension: ``[..., C] -> [...]``.

    ``labels`` t has the shape of ``scores`` s: booleans, or numbers from 0 to 1 (soft labels). A score of -inf is a
    cell that does not exist; its label must be 0. At the optimum ``t = sigmoid(2 s)``: positives lie above 0.

    Computed in float32 (float64 for float64 scores). Raises ``ValueError`` for labels of another shape, outside 0 to
    1, or on a cell of -inf. Source: Su et al. 2022, "ZLPR: A Novel Loss for Multi-label Classification",
    arXiv:2208.02955; soft labels: kexue.fm/archives/9064.

    >>> multilabel_cross_entropy(torch.zeros(2), torch.tensor([True, False])).item()  # log 2 + log 2
    1.3862943...
    """
    if labels.shape != scores.shape:
        raise ValueError(f"labels must have the shape of scores {tuple(scores.shape)}, got {tuple(labels.shape)}")
    hard = labels.dtype == torch.bool
    if not hard and not bool(((labels >= 0) & (labels <= 1)).all()):
        raise ValueError("labels must be booleans or numbers from 0 to 1, got others")
    scores = _wide(scores)
    missing = scores == NO_CELL
    if bool((missing & (labels != 0)).any()):
        raise ValueError("labels must be 0 where scores are -inf (cells that do not exist), got others there")
    if hard:
        positive, negative = (-scores).masked_fill_(~labels, NO_CELL), scores.masked_fill(labels, NO_CELL)
    else:
        share = labels.to(scores.dtype)
        positive = (share.log() - scores).masked_fill_(missing, NO_CELL)
        negative = (1 - share).log() + scores
    return log_one_plus_sum(positive) + log_one_plus_sum(negative)


def sparse_multilabel_cross_entropy(scores: Tensor, positives: Tensor) -> Tensor:
    """`multilabel_cross_entropy` of hard labels given as a list: ``[..., C]``, ``[..., P] -> [...]``.

    ``positives`` holds the indices of the positive cells, each once, padded with -1. They are taken out of the
    negatives instead of subtracted afterwards, so value and gradient are exact for every score.

    Raises ``ValueError`` for an index outside -1 to C - 1, one given twice, and one of a cell of -inf.

    >>> sparse_multilabel_cross_entropy(torch.zeros(2), torch.tensor([0, -1])).item()
    1.3862943...
    """
    scores = _wide(scores)
    cells = scores.shape[-1]
    _check_indices(positives, scores)
    listed = positives >= 0
    chosen = torch.where(listed, scores.gather(-1, positives.clamp(min=0)) if cells else 0, 0)
    if bool((chosen == NO_CELL).any()):
        raise ValueError("positives must not name cells whose score is -inf (cells that do not exist)")
    positive = torch.where(listed, -chosen, NO_CELL)
    taken = torch.zeros(*scores.shape[:-1], cells + 1, dtype=torch.bool, device=scores.device)
    taken = taken.scatter(-1, torch.where(listed, positives, cells), True)[..., :cells]
    return log_one_plus_sum(positive) + log_one_plus_sum(scores.masked_fill(taken, NO_CELL))


def log_one_plus_sum(x: Tensor) -> Tensor:
    """``log(1 + sum e^x)`` over the last dimension, exact for every x and for -inf.

    >>> log_one_plus_sum(torch.tensor([[float("-inf")], [0.0], [1000.0]])).tolist()
    [0.0, 0.693147..., 1000.0]
    """
    top = x.detach().amax(-1, keepdim=True).clamp(min=0) if x.shape[-1] else x.new_zeros(*x.shape[:-1], 1)
    return (top + (torch.expm1(-top) + (x - top).exp_().sum(-1, keepdim=True)).log1p()).squeeze(-1)


def log_one_plus_sums(x: Tensor, rows: Tensor, count: int) -> Tensor:
    """``log(1 + sum e^x)`` over the entries of each row: ``[N]``, their row numbers ``[N]`` -> ``[count]``.

    >>> log_one_plus_sums(torch.zeros(2), torch.tensor([2, 2]), 3).tolist()  # log 1, log 1, log 3
    [0.0, 0.0, 1.098612...]
    """
    top = x.new_zeros(count).scatter_reduce(0, rows, x.detach(), "amax")
    return top + torch.expm1(-top).index_add(0, rows, (x - top[rows]).exp()).log1p()


def _wide(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _check_indices(positives: Tensor, scores: Tensor) -> None:
    if positives.dtype != torch.int64 or positives.shape[:-1] != scores.shape[:-1]:
        raise ValueError(
            f"positives must be int64 {tuple(scores.shape[:-1])} + [P], a padded list for each row of scores, "
            f"got {positives.dtype} {tuple(positives.shape)}"
        )
    cells = scores.shape[-1]
    if bool(((positives < -1) | (positives >= cells)).any()):
        raise ValueError(f"positives must be indices from 0 to {cells - 1}, padded with -1, got others")
    ordered = positives.sort(-1).values
    if bool(((ordered.diff(dim=-1) == 0) & (ordered[..., 1:] >= 0)).any()):
        raise ValueError("positives must name each cell once, got one twice")


def negative_term(factors: Factors, sentence: Tensor, positives: Tensor, num_types: int, tril: bool) -> Tensor:
    """``log(1 + sum e^s)`` over the valid cells that are not among ``positives`` ``[N, 4]``: ``[B, num_types]``.

    The backward pass forms the blocks again, as FlashAttention does (arXiv:2205.14135, section 3.1), so memory is
    that of one block. It can be differentiated once.
    """
    return _NegativeTerm.apply(*factors, sentence, positives, num_types, tril)


class _NegativeTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        q, k, start, end, sentence, positives, num_types, tril = inputs
        term = q.new_zeros(q.shape[0], num_types)  # the 1 in the sum
        for _, _, scores in _blocks(Factors(q, k, start, end), sentence, positives, tril):
            # At least 0, so that a block in which all is -inf does not subtract -inf from itself, which is NaN.
            top = scores.amax((-2, -1), keepdim=True).clamp_(min=0)
            mass = scores.sub_(top).exp_().sum((-2, -1))
            term = torch.logaddexp(term, top.squeeze((-2, -1)) + mass.log())
        ctx.save_for_backward(q, k, start, end, sentence, positives, term)
        ctx.tril = tril
        return term

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():  # else a second derivative would come out wrong in silence
            raise RuntimeError(
                "the loss of a span head can be differentiated once, got create_graph=True; "
                "for second derivatives use multilabel_cross_entropy of the head's scores"
            )
        q, k, start, end, sentence, positives, term = ctx.saved_tensors
        d_q, d_k = torch.zeros_like(q), torch.zeros_like(k)
        d_start, d_end = (None if t is None else torch.zeros_like(t) for t in (start, end))
        with torch.autocast(q.device.type, enabled=False):  # on where backward() is called inside of it
            for rows, columns, scores in _blocks(Factors(q, k, start, end), sentence, positives, ctx.tril):
                share = scores.sub_(term[..., None, None]).exp_().mul_(grad[..., None, None])
                if d_start is not None and d_end is not None:
                    d_start[:, :, rows] += share.sum(-1)
                    d_end[:, :, columns] += share.sum(-2)
                if q.shape[1] != share.shape[1]:
                    share = share.sum(1, keepdim=True)
                d_q[:, :, rows] += share @ k[:, :, columns]
                d_k[:, :, columns] += share.mT @ q[:, :, rows]
        return d_q, d_k, d_start, d_end, None, None, None, None


def _blocks(factors: Factors, sentence: Tensor, positives: Tensor, tril: bool) -> Iterator[tuple[slice, slice, Tensor]]:
    """Rows, columns and scores of each block, -inf in the cells that do not exist and in the positive ones."""
    batch, types, start, end = positives.T
    length = sentence.shape[1]
    for first in range(0, length, ROWS):
        left = first if tril else 0
        rows, columns = slice(first, first + ROWS), slice(left, length)
        scores = score_block(factors, rows, columns)
        scores.masked_fill_(~valid_cells(sentence, tril, rows, columns), float("-inf"))
        here = (start >= first) & (start < first + ROWS)
        scores[batch[here], types[here], start[here] - first, end[here] - left] = float("-inf")
        yield rows, columns, scores
