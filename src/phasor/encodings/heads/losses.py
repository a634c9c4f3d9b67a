"""Multilabel categorical cross entropy (ZLPR): dense, and exact from lists of the positive cells."""

import torch
from torch import Tensor

_NEVER = float("-inf")


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
    missing = scores == _NEVER
    if bool((missing & (labels != 0)).any()):
        raise ValueError("labels must be 0 where scores are -inf (cells that do not exist), got others there")
    if hard:
        positive, negative = (-scores).masked_fill_(~labels, _NEVER), scores.masked_fill(labels, _NEVER)
    else:
        share = labels.to(scores.dtype)
        positive = (share.log() - scores).masked_fill_(missing, _NEVER)
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
    if bool((chosen == _NEVER).any()):
        raise ValueError("positives must not name cells whose score is -inf (cells that do not exist)")
    positive = torch.where(listed, -chosen, _NEVER)
    taken = torch.zeros(*scores.shape[:-1], cells + 1, dtype=torch.bool, device=scores.device)
    taken = taken.scatter(-1, torch.where(listed, positives, cells), True)[..., :cells]
    return log_one_plus_sum(positive) + log_one_plus_sum(scores.masked_fill(taken, _NEVER))


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
