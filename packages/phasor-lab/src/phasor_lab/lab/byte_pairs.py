"""What can be predicted without any context but the byte before: the least that a trained model must do better."""

import torch
from torch import Tensor

BYTES = 256


def byte_pairs_loss(train: Tensor, scored: Tensor) -> float:
    """Mean loss in nats of each byte of ``scored`` but the first, by what follows the byte before it in ``train``.

    ``p(b | a) = (count(a, b) + p(b)) / (count(a) + 1)`` with ``p(b) = (count(b) + 1) / (n + 256)``: pairs that never
    occurred fall back to how common the byte is, and no probability is zero.

    >>> text = torch.tensor([0, 1] * 500, dtype=torch.uint8)
    >>> byte_pairs_loss(text, text) < 0.01
    True
    """
    pairs = torch.bincount(train[:-1].long() * BYTES + train[1:].long(), minlength=BYTES * BYTES).view(BYTES, BYTES)
    common = (torch.bincount(train.long(), minlength=BYTES) + 1).double() / (len(train) + BYTES)
    follows = (pairs + common) / (pairs.sum(1, keepdim=True) + 1)
    return float(-follows[scored[:-1].long(), scored[1:].long()].log().mean())
