"""The loss of all negative cells, a block of rows at a time: no square of scores is ever kept."""

from typing import Any

import torch
from torch import Tensor

from .cells import valid_cells
from .scores import Factors, score_block

ROWS = 64  # per block: fewer cost more launches, more cost cells below the diagonal and memory


def negative_term(factors: Factors, sentence: Tensor, positives: Tensor, num_types: int, tril: bool) -> Tensor:
    """``log(1 + sum e^s)`` over the valid cells that are not among ``positives`` ``[N, 4]``: ``[B, num_types]``.

    The backward pass forms the blocks again, as FlashAttention does (arXiv:2205.14135, section 3.1), so memory is
    that of one block. It can be differentiated once.
    """
    term: Tensor = _NegativeTerm.apply(*factors, sentence, positives, num_types, tril)
    return term


class _NegativeTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        q, k, start, end, sentence, positives, num_types, tril = inputs
        term = q.new_zeros(q.shape[0], num_types)  # the 1 in the sum
        for _, _, scores in _blocks(Factors(q, k, start, end), sentence, positives, tril):
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


def _blocks(factors: Factors, sentence: Tensor, positives: Tensor, tril: bool) -> Any:
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
