"""Where the tokens of pictures and clips stand beside text, by the rules that models of pictures have.

A rule is a choice of independent ones: how rows and columns are counted, where text stands, which tokens come first.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..support.checks import number, one_of, whole

Sides = tuple[int, int]  # rows and columns
TEXT = ("still", "diagonal", "plane", "axis")


def _counted(sides: Sides, base: Sides) -> list[Tensor]:
    return [torch.arange(n) for n in sides]


def _centred(sides: Sides, base: Sides) -> list[Tensor]:
    return [torch.arange(n) - (n - n // 2) for n in sides]


def _stretched(sides: Sides, base: Sides) -> list[Tensor]:
    return [torch.arange(n).double() / n * size for n, size in zip(sides, base, strict=True)]


def _cropped(sides: Sides, base: Sides) -> list[Tensor]:
    """Over the middle of the base that has the picture's shape, from its start to (n - 1) / n of its end."""
    (rows, columns), (high, wide) = sides, base
    taller = rows / columns > high / wide
    crop = (high, round(high / rows * columns)) if taller else (round(wide / columns * rows), wide)
    starts = [round((size - side) / 2) for size, side in zip(base, crop, strict=True)]
    return [
        torch.linspace(start, (start + side) * (n - 1) / n, n, dtype=torch.float32)  # as models round them
        for start, side, n in zip(starts, crop, sides, strict=True)
    ]


def _spread(sides: Sides, base: Sides) -> list[Tensor]:
    return [torch.arange(n) * size // n for n, size in zip(sides, base, strict=True)]


def _middles(sides: Sides, base: Sides) -> list[Tensor]:
    scale = math.sqrt(math.prod(base) / math.prod(sides))
    return [(torch.arange(n).double() + 0.5 - n / 2) * scale for n in sides]


GRIDS: dict[str, Callable[[Sides, Sides], list[Tensor]]] = {  # where each row, and each column, stands
    "counted": _counted,
    "centred": _centred,
    "stretched": _stretched,
    "cropped": _cropped,
    "spread": _spread,
    "middles": _middles,
}


def pictures(
    *sizes: Sequence[int],
    grid: str = "counted",
    base: Sides | None = None,
    text: int = 0,
    text_at: str = "still",
    text_last: bool = False,
    first: int = 0,
    planes: Sequence[int] | None = None,
    frame_step: float = 1,
) -> Tensor:
    """Positions ``[axes, S]`` of pictures (``rows, columns``) or clips (``frames, rows, columns``) and of text.

    ``grid``, with the rows and columns of a ``base`` where it needs them:

    - ``"counted"`` from 0 (FLUX, Wan, HunyuanVideo); ``"centred"``: 0 is in the middle (Qwen-Image)
    - ``"stretched"``: every picture from 0 to ``base`` (EVA-02); ``"cropped"``: over the part of it that has the
      picture's shape (CogVideoX, EasyAnimate); ``"spread"``: by whole numbers up to ``base`` (CogView 4)
    - ``"middles"`` of cells around 0, scaled to the area of ``base`` (Mochi)

    ``text`` tokens stand, by ``text_at``, ``"still"`` at 0; on the ``"diagonal"``, the same on all axes, from where the
    largest picture ends (Qwen-Image); one after the other on the first axis, with the picture on the ``"plane"`` behind
    them (Lumina 2; Z-Image, from ``first=1``); or on a fourth ``"axis"`` (FLUX 2). They come before the pictures, or
    with ``text_last`` behind them. ``planes``: where the first axis of each picture begins, by default 0, 1, 2, …;
    ``frame_step`` of a frame, where it is counted in time (Cosmos: 24 / fps). The result is int64 where the rule gives
    whole numbers, else float64. DINOv3's rule is `centres`.

    >>> pictures((2, 2), text=1, text_at="plane").tolist()
    [[0, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 0, 1]]
    """
    one_of("grid", grid, tuple(GRIDS))
    one_of("text_at", text_at, TEXT)
    whole("text", text, at_least=0)
    number("frame_step", frame_step, above=0)
    clips = [_clip(i, size) for i, size in enumerate(sizes)]
    if not clips:
        raise ValueError("sizes must name at least one picture, got none; pictures((rows, columns)) is one")
    planes = range(len(clips)) if planes is None else planes
    if len(planes) != len(clips):
        raise ValueError(f"planes must be one for each of {len(clips)} pictures, got {len(planes)}")
    if (base is None) != (grid in ("counted", "centred")):
        raise ValueError(f"base must be (rows, columns), or None for a grid without one, got {base} for {grid!r}")
    if base is not None and len(base) != 2:
        raise ValueError(f"base must be (rows, columns), got {base}")
    for axis, side in enumerate(base or ()):
        number(f"base[{axis}]", side, above=0)
    if first and text_at != "plane":
        raise ValueError(f"first is for text on a plane of its own, got {first} with text_at {text_at!r}")
    behind = first + text if text_at == "plane" else 0
    cells = torch.cat(
        [
            _cells(torch.arange(frames) * frame_step + plane + behind, *GRIDS[grid]((rows, columns), base or (1, 1)))
            for (frames, rows, columns), plane in zip(clips, planes, strict=True)
        ],
        1,
    )
    words = torch.zeros(3, text, dtype=cells.dtype)
    along = torch.arange(text)
    if text_at == "diagonal":
        words += along + int(cells[1:].max()) + 1
    elif text_at == "plane":
        words[0] += along + first
    elif text_at == "axis":
        words, cells = torch.cat((words, along[None].to(words))), torch.nn.functional.pad(cells, (0, 0, 0, 1))
    return torch.cat((cells, words) if text_last else (words, cells), 1)


def _clip(index: int, size: Sequence[int]) -> tuple[int, int, int]:
    """Frames, rows and columns of a picture or a clip."""
    if len(size) not in (2, 3):
        raise ValueError(f"sizes[{index}] must be (rows, columns) or (frames, rows, columns), got {tuple(size)}")
    for axis, count in enumerate(size):
        whole(f"sizes[{index}][{axis}]", count)
    frames, rows, columns = (1, *size)[-3:]
    return frames, rows, columns


def _cells(*lines: Tensor) -> Tensor:
    """Frame by frame, row by row; whole numbers where all lines have them."""
    dtype = torch.float64 if any(line.is_floating_point() for line in lines) else torch.int64
    return torch.stack(torch.meshgrid(*(line.to(dtype) for line in lines), indexing="ij")).flatten(1)
