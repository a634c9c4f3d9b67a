"""Builders of positions: int64, one per token (and axis), said aloud instead of assumed.

A rotation is only as right as its positions. Each builder covers one case where a plain ``arange`` is wrong.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .checks import whole


def packed(cu_seqlens: Tensor) -> Tensor:
    """Documents packed end to end: ``[documents + 1]`` cumulative lengths -> int64 ``[total]``, 0 at each start.

    >>> packed(torch.tensor([0, 3, 5])).tolist()
    [0, 1, 2, 0, 1]
    """
    bounds = _integers("cu_seqlens", cu_seqlens, 1)
    lengths = bounds.diff()
    if bounds.numel() < 2 or bounds[0] != 0 or (lengths < 0).any():
        raise ValueError(
            "cu_seqlens must start at 0 and never fall (cumulative lengths, [0, 3, 5] for documents of 3 and 2), "
            f"got {bounds.tolist()[:8]}"
        )
    starts = bounds[:-1].repeat_interleave(lengths)
    return torch.arange(int(bounds[-1]), device=bounds.device) - starts


def from_mask(mask: Tensor) -> Tensor:
    """Padded batches, left or right: mask ``[B, S]``, 1 or True where a token is real -> int64 ``[B, S]``.

    Real tokens count from 0 in their row, wherever the padding is. Padding gets 0, which nothing may attend to.

    >>> from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])).tolist()
    [[0, 0, 0, 1], [0, 1, 2, 0]]
    """
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        raise ValueError(f"mask must be a tensor [batch, seq], got {_shape(mask)}")
    real = mask != 0
    if not bool(((mask == 1) | ~real).all()):
        raise ValueError(
            "mask must hold only 0 and 1 (or booleans), got other values; for packed documents with ids 1, 2, 3 "
            "use phasor.positions.packed"
        )
    return (real.to(torch.int64).cumsum(-1) - 1).clamp(min=0) * real


def decode(cached: Tensor, new: int = 1) -> Tensor:
    """The next ``new`` tokens of sequences that already hold ``cached`` ``[B]`` tokens -> int64 ``[B, new]``.

    >>> decode(torch.tensor([5, 2]), new=2).tolist()
    [[5, 6], [2, 3]]
    """
    lengths = _integers("cached", cached, 1)
    whole("new", new)
    if (lengths < 0).any():
        raise ValueError(f"cached must hold lengths of at least 0, got {lengths.tolist()[:8]}")
    return lengths.unsqueeze(-1) + torch.arange(new, device=lengths.device)


def text(positions: Tensor, axes: int = 3) -> Tensor:
    """Text in a model with several axes: the same number on each, ``[..., S] -> [axes, ..., S]``, a view.

    >>> text(torch.tensor([4, 5]), axes=2).tolist()
    [[4, 5], [4, 5]]
    """
    whole("axes", axes)
    if not isinstance(positions, Tensor):
        raise ValueError(f"positions must be a tensor, got {type(positions).__name__}")
    return positions.unsqueeze(0).expand(axes, *positions.shape)


def grid(*sizes: int, start: int = 0, device: torch.device | str | None = None) -> Tensor:
    """Cells of an image (``height, width``) or a video (``frames, height, width``): int64 ``[axes, S]``.

    >>> grid(2, 3).tolist()
    [[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    """
    if not sizes:
        raise ValueError("sizes must name at least one axis, got none; grid(height, width) is an image")
    for axis, size in enumerate(sizes):
        whole(f"sizes[{axis}]", size)
    whole("start", start, at_least=-(2**62))
    ranges = [torch.arange(start, start + size, device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*ranges, indexing="ij")).flatten(1)


def mrope(segments: Sequence[int | tuple[int, int] | tuple[int, int, int]]) -> Tensor:
    """Text and vision in one sequence, for M-RoPE: int64 ``[3, S]`` (time, height, width).

    A segment is a number of text tokens, ``(height, width)`` of an image, or ``(frames, height, width)`` of a video,
    in merged patches (one per token). Text has the same number on all axes; a grid counts from where the text
    stopped; what follows resumes at the largest number so far plus one.
    Source: Qwen2-VL, arXiv:2409.12191, section 2.1.

    >>> mrope([2, (1, 2), 1]).tolist()
    [[0, 1, 2, 2, 4], [0, 1, 2, 2, 4], [0, 1, 2, 3, 4]]
    """
    blocks: list[Tensor] = []
    start = 0
    for i, segment in enumerate(segments):
        if isinstance(segment, tuple) and len(segment) in (2, 3):
            sizes = segment if len(segment) == 3 else (1, *segment)
            block = grid(*sizes, start=start)
        else:
            whole(f"segments[{i}]", segment)
            block = text(torch.arange(start, start + segment))  # type: ignore[operator]
        start = int(block.max()) + 1
        blocks.append(block)
    if not blocks:
        raise ValueError("segments must name at least one run of text or one grid, got none")
    return torch.cat(blocks, dim=-1)


def _shape(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _integers(name: str, value: Tensor, ndim: int) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim != ndim:
        raise ValueError(f"{name} must be a tensor with {ndim} dimension, got {_shape(value)}")
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, got {value.dtype}")
    return value.to(torch.int64)
