"""Cells of images and videos, as vision towers number them: ``[axes, S]``, one coordinate per axis.

Other conventions are one operation away: ``(x, y)`` order is ``.flip(0)``, counting from one is ``+ 1``. Llama 4 and
Muse do both, Inkling 2 only the second; special tokens are no cells (`Rotation.padded`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..support.checks import listed, whole
from .tensor_checks import integers


def grid(*sizes: int, start: int = 0, device: torch.device | str | None = None) -> Tensor:
    """Cells of an image (``height, width``) or a video (``frames, height, width``): int64 ``[axes, S]``.

    Row by row, the last axis fastest (Pixtral, SAM, V-JEPA 2).

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


def patches(grids: Tensor, merge: int | Sequence[int] = 1, *, time: bool = False) -> Tensor:
    """Patches of images and videos packed end to end, in blocks that become one token: int64 ``[2 or 3, S]``.

    ``grids`` ``[n, 3]`` holds frames, height and width of each (``grid_thw``). Blocks of ``merge x merge`` patches
    follow each other row by row, and so do the patches inside a block; ``merge`` may name one size per grid (Video
    LLaMA 3), 1 is row by row throughout (Kimi K2.5). Axes are (height, width), the same in every frame, or (time,
    height, width) with ``time`` (MiniMax M3). Equals ``get_vision_position_ids`` of transformers, transposed.

    >>> patches(torch.tensor([[1, 2, 4]]), merge=2).tolist()
    [[0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 2, 3, 2, 3]]
    """
    sizes = grid_sizes("grids", grids)
    if isinstance(merge, int):
        merge = [merge] * len(sizes)
    listed("merge", merge)
    if len(merge) != len(sizes):
        raise ValueError(f"merge must be one number, or one per grid: {len(sizes)} grids, got {len(merge)} numbers")
    cells = [torch.empty(3, 0, dtype=torch.int64)]
    for i, ((frames, height, width), m) in enumerate(zip(sizes, merge, strict=True)):
        whole(f"merge[{i}]", m)
        if height % m or width % m:
            raise ValueError(f"grids[{i}] must have a height and width that {m} divides (merge), got {height, width}")
        # Cells that merge into one token follow each other: rows inside a block come behind the blocks of a row.
        blocks = grid(frames, height, width).reshape(3, frames, height // m, m, width // m, m)
        cells.append(blocks.transpose(3, 4).flatten(1))
    return torch.cat(cells, 1)[0 if time else 1 :].to(grids.device)


def centres(height: int, width: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Centres of ``height x width`` patches on a square from -1 to 1, row by row: ``[2, S]``, ``(y, x)``.

    ``2 (i + 1/2) / n - 1``, formed in ``dtype``, in the order of operations of the model. For a spec with
    ``coordinates="real"``. Source: DINOv3, arXiv:2508.10104, section 3.2; so do Sapiens 2 and EoMT.

    >>> centres(1, 2).tolist()
    [[0.0, 0.0], [-0.5, 0.5]]
    """
    sides = []
    for name, size in (("height", height), ("width", width)):
        whole(name, size)
        sides.append(torch.arange(0.5, size, dtype=dtype) / size)
    return 2.0 * torch.stack(torch.meshgrid(*sides, indexing="ij")).flatten(1) - 1.0


def grid_sizes(name: str, grids: Tensor) -> list[list[int]]:
    """The rows of ``grids`` ``[n, 3]``; ``ValueError`` unless each has frames, height and width of at least 1.

    >>> grid_sizes("grids", torch.tensor([[1, 4, 0]]))
    Traceback (most recent call last):
    ValueError: grids must hold (frames, height, width) of at least 1, got (1, 4, 0) at 0
    """
    sizes: list[list[int]] = integers(name, grids, 2, "[n, 3] of (frames, height, width)").tolist()
    for i, size in enumerate(sizes):
        if len(size) != 3 or min(size) < 1:
            raise ValueError(f"{name} must hold (frames, height, width) of at least 1, got {tuple(size)} at {i}")
    return sizes
