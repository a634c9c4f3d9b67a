"""From segments to positions: the one builder behind all rules of M-RoPE."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..support.checks import listed, number, whole
from .grids import grid
from .rows import text
from .rules import PAPER, Rule


@dataclass(frozen=True)
class Video:
    """A video in merged patches, one per token: ``frames x height x width`` tokens, frame by frame.

    ``seconds`` lie between two frames (``second_per_grid_ts``); only rules that count time in seconds look at it.
    ``audio`` tokens of its sound are mixed in, where a model reads video and sound as one (Qwen-Omni with
    ``use_audio_in_video``); then the segment also holds the two marks before and the two after it.
    An image is a video of one frame.

    >>> Video(2, 3, 4)
    Video(frames=2, height=3, width=4, seconds=1.0, audio=0)
    """

    frames: int
    height: int
    width: int
    seconds: float = 1.0
    audio: int = 0

    def __post_init__(self) -> None:
        whole("frames", self.frames)
        whole("height", self.height)
        whole("width", self.width)
        number("seconds", self.seconds, at_least=0)
        whole("audio", self.audio, at_least=0)


Segment: TypeAlias = int | tuple[int, int] | tuple[int, int, int] | Video


class Placed(NamedTuple):
    """Positions and what is needed to go on decoding, the two results of a model's ``get_rope_index``.

    ``positions`` is ``[axes, S]`` for one sequence, ``[axes, B, S]`` for a batch: int64, or float32 where the rule has
    fractional time. ``offset`` (``rope_deltas``), ``[1]`` or ``[B, 1]``, added to the number of real tokens so far is
    the position of the next one (`decode_from`).

    >>> placed = Placed(torch.tensor([[0, 1, 1]]), torch.tensor([-1]))
    >>> (3 + placed.offset).tolist()  # of the next token: three came before, one of which moved nothing on
    [2]
    """

    positions: Tensor
    offset: Tensor


def from_segments(segments: Sequence[Segment], rule: Rule) -> Placed:
    """Positions of one sequence that is given as segments: ``[axes, S]`` and the offset ``[1]``.

    A segment is a number of tokens (text or sound), ``(height, width)`` of an image, ``(frames, height, width)`` of a
    video, or a `Video`, in merged patches (one per token). Raises ``ValueError`` for anything else.

    Two words, an image of 1 x 2, one word; the next token, number 5 in the cache, has position 5 + 0:

    >>> placed = from_segments([2, (1, 2), 1], Rule())
    >>> placed.positions.tolist(), placed.offset.tolist()
    ([[0, 1, 2, 2, 4], [0, 1, 2, 2, 4], [0, 1, 2, 3, 4]], [0])
    """
    listed("segments", segments)
    if not segments:
        raise ValueError("segments must name at least one run of text or one grid, got none")
    return place([_as_segment(f"segments[{i}]", segment) for i, segment in enumerate(segments)], rule, count())


def mrope(segments: Sequence[int | tuple[int, int] | tuple[int, int, int]]) -> Tensor:
    """Text and vision in one sequence, by the paper: int64 ``[3, S]`` (time, height, width).

    Segments are those of `from_segments`. Text has the same number on all axes; a grid counts from where the text
    stopped; what follows resumes at the largest number so far plus one. Shipped models differ after videos: their
    rules stand in the rows of `phasor.models` (`phasor.configs.read_rule`). Source: Qwen2-VL, arXiv:2409.12191,
    section 2.1.

    >>> mrope([2, (1, 2), 1]).tolist()
    [[0, 1, 2, 2, 4], [0, 1, 2, 2, 4], [0, 1, 2, 3, 4]]
    """
    return from_segments(segments, PAPER).positions


def place(segments: Sequence[int | Video], rule: Rule, images: Iterator[int]) -> Placed:
    """`from_segments` after its checks; ``images`` numbers the images of a batch."""
    dtype = torch.int64 if rule.whole else torch.float32
    blocks, start = [torch.empty(rule.axes, 0, dtype=dtype)], torch.zeros((), dtype=dtype)
    for segment in segments:
        for piece in _pieces(segment, rule):
            block = _block(piece, start, rule, images)
            blocks.append(block)
            start = _after(piece, block, start, rule)
    positions = torch.cat(blocks, 1)
    length = positions.shape[1]
    return Placed(positions, (positions.amax() + 1 - length if length else start).reshape(1))


def _as_segment(name: str, value: object) -> int | Video:
    """A number of tokens, or the `Video` that ``(height, width)`` and ``(frames, height, width)`` stand for.

    >>> _as_segment("segments[0]", (3, 4))
    Video(frames=1, height=3, width=4, seconds=1.0, audio=0)
    """
    if isinstance(value, Video):
        return value
    if isinstance(value, tuple) and len(value) in (2, 3):
        return Video(*value) if len(value) == 3 else Video(1, *value)
    if isinstance(value, int):
        whole(name, value)
        return value
    raise ValueError(
        f"{name} must be an integer of at least 1 (tokens of text or sound), (height, width) of an image, "
        f"(frames, height, width) of a video, or a Video, got {value!r}"
    )


def tokens(video: Video, rule: Rule) -> int:
    """How many tokens a video without sound takes.

    >>> tokens(Video(2, 3, 4), Rule()), tokens(Video(1, 3, 4), Rule(after="tokens"))
    (24, 15)
    """
    return video.frames * video.height * (video.width + (rule.after == "tokens"))


def _pieces(segment: int | Video, rule: Rule) -> list[int | Video]:
    """The runs of tokens that are numbered as one."""
    if isinstance(segment, int):
        return [segment]
    if segment.audio and rule.mix is None:
        raise ValueError(f"audio must be 0: this rule does not mix sound into a video, got {segment}")
    if segment.frames > 1 and rule.after == "tokens":
        raise ValueError(f"frames must be 1: this rule knows images and no videos, got {segment}")
    return [Video(1, segment.height, segment.width)] * segment.frames if rule.per_frame else [segment]


def _block(piece: int | Video, start: Tensor, rule: Rule, images: Iterator[int]) -> Tensor:
    """``[axes, n]`` of one run that starts at ``start``."""
    if isinstance(piece, int):
        return text(start + torch.arange(piece), rule.axes)
    if piece.audio:
        return _with_sound(piece, start, rule)
    return _apart(piece, start, rule, next(images)) if rule.after == "tokens" else _cells(piece, start, rule)


def _after(piece: int | Video, block: Tensor, start: Tensor, rule: Rule) -> Tensor:
    """Where the next run starts."""
    if rule.after == "tokens":
        return start + block.shape[1]
    if rule.after == "plane" and isinstance(piece, Video):
        return start + max(piece.height, piece.width)
    return block[:, -1].max() + 1  # the last cell of a grid is its largest


def _apart(image: Video, start: Tensor, rule: Rule, number: int) -> Tensor:
    """An image with coordinates of its own: column, row, number of the image, behind the number of the token."""
    rows, columns = grid(image.height, image.width + 1)
    own = (columns, rows, torch.full_like(rows, number))
    return torch.stack((*[start + torch.arange(len(rows))] * (rule.axes - 3), *own))


def _cells(video: Video, start: Tensor, rule: Rule) -> Tensor:
    """Time, height and width of the cells of a video, counted from ``start``."""
    time, height, width = grid(video.frames, video.height, video.width)
    return start + torch.stack((_times(video, rule)[time], height, width))


def _times(video: Video, rule: Rule) -> Tensor:
    """When each frame is, counted in positions from the first one."""
    frames = torch.arange(video.frames)
    if rule.time == "frames":
        return frames
    if rule.time == "interval":
        times = frames * (rule.rate * video.seconds)
    else:
        times = frames * torch.tensor(video.seconds, dtype=torch.float32) * rule.rate
    return times.to(torch.int64 if rule.whole else torch.float32)


def _with_sound(video: Video, start: Tensor, rule: Rule) -> Tensor:
    """Two marks, video and sound in the order of their tokens (a stable sort, video first), two marks."""
    marks = torch.tensor([0, 0] if rule.shared_marks else [0, 1])
    start = start + marks
    streams = (_cells(video, start[-1] + 1, rule), text(start[-1] + 1 + torch.arange(video.audio)))
    keys = [_chunks(s[0] - s[0, 0], rule) if rule.mix == "chunks" else s[0] for s in streams]
    mixed = torch.cat(streams, 1)[:, torch.cat(keys).argsort(stable=True)]
    return torch.cat((text(start), mixed, text(mixed[:, -1].max() + 1 + marks)), 1)


def _chunks(times: Tensor, rule: Rule) -> Tensor:
    """The chunk of each token: that of its time, but at most one further than the token before it."""
    number, at = times // int(rule.rate * rule.chunk), torch.arange(len(times))
    return (number - at).cummin(0).values + at  # less its index, a number that rises by one at most never rises
