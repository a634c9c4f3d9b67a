"""Positions of pictures that are a thumbnail and slices on one canvas (MiniCPM-V 4.7)."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from .multimodal import IMAGE, TEXT, VIDEO
from .rows import real_tokens
from .segments import Placed
from .tensor_checks import integers


class Crop(NamedTuple):
    """Tokens ``start`` to ``end`` of a row: a thumbnail or a slice of ``height x width`` tokens."""

    start: int
    end: int
    height: int
    width: int


def from_canvas(
    input_ids: Tensor,
    kinds: Tensor,
    *,
    slice_start: int,
    marks: Sequence[int],
    image_sizes: Tensor | None = None,
    video_sizes: Tensor | None = None,
    merge: int = 4,
    mask: Tensor | None = None,
) -> Placed:
    """Positions ``[3, B, S]`` where slices tile the canvas of their picture, and the offset ``[B, 1]``.

    Time stands still in a picture. Its slices are cells of the canvas, row by row; the thumbnail before them is spread
    over the whole canvas; text goes on at the longer side plus one. Marks stand at the corners of what they open and
    close, line breaks right of their row. ``slice_start`` opens a slice, ``marks`` are all other ids of marks (image
    start and end, slice end, line break). ``kinds`` is that of `token_kinds`; the sizes ``[n, 2]`` hold height and
    width in patches of every thumbnail and slice (``target_sizes``, ``target_sizes_videos``), ``merge`` x ``merge`` of
    which are one token. Equals ``get_rope_index`` of transformers 5.23. Raises ``ValueError`` where they do not match.

    A thumbnail of 1 x 2 tokens (7) between its marks (8 and 9):

    >>> ids = torch.tensor([[5, 8, 7, 7, 9, 5]])
    >>> sizes = torch.tensor([[4, 8]])
    >>> from_canvas(ids, (ids == 7).long(), slice_start=3, marks=(8, 9), image_sizes=sizes).positions[:, 0].tolist()
    [[0, 1, 1, 1, 1, 4], [0, 0, 1, 1, 2, 4], [0, 0, 1, 2, 3, 4]]
    """
    ids, token_kinds = integers("input_ids", input_ids, 2, "[batch, seq]"), integers("kinds", kinds, 2, "[batch, seq]")
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else real_tokens(mask)
    if not ids.shape == token_kinds.shape == real.shape:
        raise ValueError(
            f"kinds and mask must have the shape {tuple(ids.shape)} of input_ids, got {tuple(token_kinds.shape)}"
        )
    sizes = {IMAGE: _sizes("image_sizes", image_sizes, merge), VIDEO: _sizes("video_sizes", video_sizes, merge)}
    positions, offsets = torch.zeros(3, *ids.shape, dtype=torch.int64, device=ids.device), []
    for i, here in enumerate(real.to(ids.device)):
        row = ids[i, here].tolist()
        pictures = _pictures(row, token_kinds[i, here].tolist(), sizes, slice_start)
        placed = _row(row, pictures, {slice_start, *marks})
        positions[:, i, here] = placed.to(ids.device)
        offsets.append(int(placed.max()) + 1 - len(row) if row else 0)
    if any(sizes.values()):
        raise ValueError(f"kinds must hold a run for every size, got {sum(map(len, sizes.values()))} sizes too many")
    return Placed(positions, torch.tensor(offsets, device=ids.device).unsqueeze(1))


def _sizes(name: str, sizes: Tensor | None, merge: int) -> list[tuple[int, int]]:
    """Height and width in tokens, last one first."""
    rows = [] if sizes is None else integers(name, sizes, 2, "[n, 2]").tolist()
    return [(height // merge, width // merge) for height, width in reversed(rows)]


def _pictures(ids: list[int], kinds: list[int], sizes: dict[int, list[tuple[int, int]]], mark: int) -> list[list[Crop]]:
    """Each picture: its thumbnail, then its slices."""
    pictures: list[list[Crop]] = []
    for kind, group in groupby(range(len(kinds)), kinds.__getitem__):
        run = list(group)
        if kind == TEXT:
            continue
        if not sizes.get(kind):
            raise ValueError(f"image_sizes and video_sizes must hold a size for every run, got none for kind {kind}")
        crop = Crop(run[0], run[-1] + 1, *sizes[kind].pop())
        if crop.height * crop.width != len(run) or run[0] == 0:
            raise ValueError(f"kinds must hold a mark and {crop.height} x {crop.width} tokens, got {len(run)} tokens")
        if pictures and ids[run[0] - 1] == mark:
            pictures[-1].append(crop)
        else:
            pictures.append([crop])
    return pictures


def _row(ids: list[int], pictures: list[list[Crop]], marks: set[int]) -> Tensor:
    """Positions ``[3, S]`` of one row."""
    out, done, start = torch.zeros(3, len(ids), dtype=torch.int64), 0, 0
    for picture in pictures:
        opening, end = picture[0].start - 1, picture[-1].end
        if opening > done:
            out[:, done:opening] = torch.arange(opening - done) + start
            start += opening - done
        while end < len(ids) and ids[end] in marks:
            end += 1
        out[:, opening:end] = start
        out[1:, opening] = max(start - 1, 0)
        longer = _canvas(out[1:, :end], picture, start)
        done, start = end, start + longer + 1
    out[:, done:] = torch.arange(len(ids) - done) + start
    return out


def _canvas(out: Tensor, picture: list[Crop], start: int) -> int:
    """Write (height, width) of one picture and return the longer side of its canvas."""
    thumbnail, *slices = picture
    columns = _columns(slices)
    tile = torch.tensor(slices[0][2:] if slices else thumbnail[2:])
    sides = torch.tensor([len(slices) // columns, columns]) * tile if slices else tile
    _put(out, thumbnail.end, start + sides)
    out[:, thumbnail.start : thumbnail.end] = start + _spread(thumbnail, sides.tolist())
    for k, crop in enumerate(slices):
        corner = start + torch.tensor([k // columns, k % columns]) * tile
        _put(out, crop.start - 1, corner)
        _put(out, crop.end, corner + torch.tensor(crop[2:]) - 1)
        out[:, crop.start : crop.end] = corner[:, None] + _spread(crop, crop[2:])
        if k + 1 < len(slices):  # line breaks, between the marks that close this slice and open the next one
            for at in range(crop.end + 1, slices[k + 1].start - 1):
                _put(out, at, start + torch.tensor([(k // columns + 1) * int(tile[0]) - 1, columns * int(tile[1])]))
    return int(sides.max())


def _columns(slices: list[Crop]) -> int:
    """Slices of the first row: up to the first line break, where rows are equally long."""
    breaks = [k + 1 for k in range(len(slices) - 1) if slices[k + 1].start - slices[k].end > 2]
    return breaks[0] if breaks and len(slices) % breaks[0] == 0 else max(len(slices), 1)


def _spread(crop: Crop, sides: Sequence[int]) -> Tensor:
    """The cells of a crop, spread evenly from the first to the last cell of ``sides``."""
    lines = [torch.linspace(0, side - 1, n).round().long() for side, n in zip(sides, crop[2:], strict=True)]
    return torch.stack(torch.meshgrid(*lines, indexing="ij")).flatten(1)


def _put(out: Tensor, at: int, cell: Tensor) -> None:
    if at < out.shape[1]:
        out[:, at] = cell
