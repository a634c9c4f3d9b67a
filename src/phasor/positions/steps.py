"""Decoding steps: the positions of the tokens that follow what a cache holds."""

import torch
from torch import Tensor

from ..support.checks import whole
from .rows import text
from .tensor_checks import described, integers


def decode(cached: Tensor, new: int = 1) -> Tensor:
    """The next ``new`` tokens of sequences that already hold ``cached`` ``[B]`` tokens -> int64 ``[B, new]``.

    >>> decode(torch.tensor([5, 2]), new=2).tolist()
    [[5, 6], [2, 3]]
    """
    lengths = integers("cached", cached, 1)
    whole("new", new)
    if (lengths < 0).any():
        raise ValueError(f"cached must hold lengths of at least 0, got {lengths.tolist()[:8]}")
    return lengths.unsqueeze(-1) + torch.arange(new, device=lengths.device)


def decode_from(offset: Tensor, cached: Tensor, new: int = 1, *, axes: int = 3) -> Tensor:
    """The next ``new`` text tokens after a prompt with images, video or sound -> ``[axes, B, new]``, a view.

    ``offset`` ``[B, 1]`` is that of `from_kinds` (``rope_deltas``), ``cached`` ``[B]`` the number of real tokens,
    without padding, that each sequence holds: the position is their sum, on each axis.

    >>> decode_from(torch.tensor([[-2]]), torch.tensor([7]), new=2).tolist()
    [[[5, 6]], [[5, 6]], [[5, 6]]]
    """
    ahead = decode(cached, new)
    if not isinstance(offset, Tensor) or tuple(offset.shape) != (len(ahead), 1):
        raise ValueError(
            f"offset must be a tensor [batch, 1] with the batch {len(ahead)} of cached, got {described(offset)}; for "
            "beams repeat it as the cache was, offset.repeat_interleave(beams, dim=0)"
        )
    return text(ahead + offset, axes)
