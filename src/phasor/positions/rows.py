"""Rows of text: packed documents, padded batches, decoding steps, the same number on several axes."""

import torch
from torch import Tensor

from ..support.checks import whole
from ..support.tracing import readable
from .tensor_checks import described, integers


def packed(cu_seqlens: Tensor, offsets: Tensor | None = None, *, total: int | None = None) -> Tensor:
    """Documents packed end to end: ``[documents + 1]`` cumulative lengths -> int64 ``[total]``, 0 at each start.

    ``offsets`` ``[documents]`` are the positions at which they start instead: what their caches hold already.
    ``total`` is the number of tokens, ``cu_seqlens[-1]``. Give it in compiled code, as ``q.shape[0]``: a size that only
    the values of a tensor tell breaks a graph. There wrong lengths raise ``RuntimeError`` when the code runs.

    >>> packed(torch.tensor([0, 3, 5])).tolist()
    [0, 1, 2, 0, 1]
    >>> packed(torch.tensor([0, 3, 5]), offsets=torch.tensor([10, 0])).tolist()
    [10, 11, 12, 0, 1]
    """
    bounds = integers("cu_seqlens", cu_seqlens, 1)
    lengths = bounds.diff()
    rule = "cu_seqlens must start at 0 and never fall (cumulative lengths, [0, 3, 5] for documents of 3 and 2)"
    if bounds.numel() < 2:
        raise ValueError(f"{rule}, got {bounds.tolist()}")
    if total is None or readable(bounds):
        if bounds[0] != 0 or (lengths < 0).any():
            raise ValueError(f"{rule}, got {bounds.tolist()[:8]}")
        if total is not None and total != bounds[-1]:
            raise ValueError(f"total must be the last of cu_seqlens, {int(bounds[-1])}, got {total}")
        total = int(bounds[-1])
    else:
        right = (bounds[0] == 0) & (lengths >= 0).all() & (bounds[-1] == total)
        torch._assert_async(right, f"{rule} and end with total={total}")
    starts = bounds[:-1]
    if offsets is not None:
        first = integers("offsets", offsets, 1)
        if first.shape != lengths.shape:
            raise ValueError(f"offsets must have one value for each of {len(lengths)} documents, got {len(first)}")
        starts = starts - first
    token = torch.arange(total, device=bounds.device)
    return token - starts[torch.searchsorted(bounds[1:].contiguous(), token, right=True)]


def from_mask(mask: Tensor) -> Tensor:
    """Padded batches, left or right: mask ``[B, S]``, 1 or True where a token is real -> int64 ``[B, S]``.

    Real tokens count from 0 in their row, wherever the padding is. Padding gets 0, which nothing may attend to.

    >>> from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])).tolist()
    [[0, 0, 0, 1], [0, 1, 2, 0]]
    """
    real = real_tokens(mask)
    return (real.to(torch.int64).cumsum(-1) - 1).clamp(min=0) * real


def real_tokens(mask: Tensor) -> Tensor:
    """The mask ``[B, S]`` of `from_mask` as booleans; ``ValueError`` if it holds anything but 0 and 1.

    >>> real_tokens(torch.tensor([[0, 1]])).tolist()
    [[False, True]]
    """
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        raise ValueError(f"mask must be a tensor [batch, seq], got {described(mask)}")
    real = mask != 0
    if not bool(((mask == 1) | ~real).all()):
        raise ValueError(
            "mask must hold only 0 and 1 (or booleans), got other values; for packed documents with ids 1, 2, 3 "
            "use phasor.positions.packed"
        )
    return real


def text(positions: Tensor, axes: int = 3) -> Tensor:
    """Text in a model with several axes: the same number on each, ``[..., S] -> [axes, ..., S]``, a view.

    >>> text(torch.tensor([4, 5]), axes=2).tolist()
    [[4, 5], [4, 5]]
    """
    whole("axes", axes)
    if not isinstance(positions, Tensor):
        raise ValueError(f"positions must be a tensor, got {type(positions).__name__}")
    return positions.unsqueeze(0).expand(axes, *positions.shape)


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
