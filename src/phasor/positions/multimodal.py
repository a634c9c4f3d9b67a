"""Text, images, videos and sound in one batch: from the kind of each token and the grids of the images to positions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from .grids import grid_sizes
from .rows import real_tokens
from .rules import Rule
from .segments import Placed, Video, place, tokens
from .tensor_checks import integers

TEXT, IMAGE, VIDEO, AUDIO = range(4)
STREAMS = {TEXT: TEXT, IMAGE: IMAGE, VIDEO: VIDEO, AUDIO: VIDEO}  # nothing lies between a video and its own sound
NAMES = {IMAGE: "image_grids", VIDEO: "video_grids"}


def token_kinds(
    input_ids: Tensor,
    *,
    image: int | None = None,
    video: int | None = None,
    audio: int | None = None,
    video_marks: tuple[int, int] | None = None,
) -> Tensor:
    """What each token is, from the ids of the placeholders: int64 ``[B, S]`` of `TEXT`, `IMAGE`, `VIDEO`, `AUDIO`.

    These are 0, 1, 2, 3, the same as ``mm_token_type_ids`` of transformers. Where one placeholder serves images and
    videos (GLM-4V), ``video_marks`` names the tokens that open and close a video.

    >>> token_kinds(torch.tensor([[5, 90, 90, 5, 91, 92]]), image=90, video=91, audio=92).tolist()
    [[0, 1, 1, 0, 2, 3]]
    """
    ids = integers("input_ids", input_ids, 2, "[batch, seq]")
    kinds = torch.zeros_like(ids)
    for kind, token in ((IMAGE, image), (VIDEO, video), (AUDIO, audio)):
        if token is not None:
            kinds[ids == token] = kind
    if video_marks is not None:
        opened, closed = ((ids == mark).cumsum(-1) for mark in video_marks)
        kinds[(kinds == IMAGE) & (opened > closed)] = VIDEO
    return kinds


def from_kinds(
    kinds: Tensor,
    rule: Rule,
    *,
    image_grids: Tensor | None = None,
    video_grids: Tensor | None = None,
    seconds: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
) -> Placed:
    """Positions of a batch by the rule of a model: ``[axes, B, S]`` and the offset ``[B, 1]``.

    ``kinds`` ``[B, S]`` says what each token is (`token_kinds`, ``mm_token_type_ids``). The grids ``[n, 3]`` hold
    frames, height and width in patches, before merging, of all images and videos in the order of the batch
    (``image_grid_thw``, ``video_grid_thw``); ``seconds`` ``[videos]`` lie between two merged frames of each. ``mask``
    ``[B, S]`` is 0 at padding, left or right, which gets ``rule.padding``.

    Raises ``ValueError`` where tokens and grids do not match. Equals ``get_rope_index`` of the model (transformers
    5.23) whose rule it is, to float32 rounding where time is fractional.

    >>> kinds = torch.tensor([[0, 1, 1, 0]])
    >>> placed = from_kinds(kinds, Rule(merge=2), image_grids=torch.tensor([[1, 4, 2]]))
    >>> placed.positions[:, 0].tolist(), placed.offset.tolist()
    ([[0, 1, 1, 3], [0, 1, 2, 3], [0, 1, 1, 3]], [[0]])
    """
    kinds = integers("kinds", kinds, 2, "[batch, seq]")
    real = torch.ones_like(kinds, dtype=torch.bool) if mask is None else real_tokens(mask).to(kinds.device)
    if real.shape != kinds.shape:
        raise ValueError(f"mask must have the shape {tuple(kinds.shape)} of kinds, got {tuple(real.shape)}")
    return _placed(kinds, rule, image_grids, video_grids, seconds, real)


def _placed(
    kinds: Tensor,
    rule: Rule,
    image_grids: Tensor | None,
    video_grids: Tensor | None,
    seconds: Tensor | Sequence[float] | None,
    real: Tensor,
    alone: bool = False,
) -> Placed:
    """Row by row; ``alone``: a rule that counts images begins anew in every row, instead of once for the batch."""
    allowed = (TEXT, IMAGE, VIDEO, AUDIO) if rule.mix else (TEXT, IMAGE, VIDEO)
    if not bool(torch.isin(kinds, torch.tensor(allowed, device=kinds.device)).all()):
        raise ValueError(f"kinds must be out of {allowed} for this rule, got {kinds.unique().tolist()[:8]}")
    media = Media(_images(image_grids, rule), _videos(video_grids, seconds, rule))
    each = [row[here].tolist() for row, here in zip(kinds, real, strict=True)]
    images = count()
    rows = [place(row_segments(row, media, rule), rule, count() if alone else images) for row in each]
    media.check_used_up()
    dtype = torch.int64 if rule.whole else torch.float32
    positions = torch.full((rule.axes, *kinds.shape), rule.padding, dtype=dtype, device=kinds.device)
    for i, placed in enumerate(rows):
        positions[:, i, real[i]] = placed.positions.to(kinds.device)
    return Placed(positions, torch.stack([placed.offset for placed in rows]).to(kinds.device))


class Packed(NamedTuple):
    """Positions of packed documents, ``[axes, B, S]``, and the offset of each document, ``[documents]``.

    The position of the next token of a document is its number of tokens plus its offset, as in `Placed`.

    >>> Packed(torch.tensor([[[0, 1, 1, 0]]]), torch.tensor([-1, 0])).offsets[0] + 3  # after three tokens
    tensor(2)
    """

    positions: Tensor
    offsets: Tensor


def pack(
    kinds: Tensor,
    rule: Rule,
    documents: Tensor,
    *,
    image_grids: Tensor | None = None,
    video_grids: Tensor | None = None,
    seconds: Tensor | Sequence[float] | None = None,
    text_axis: bool = False,
) -> Packed:
    """Positions of rows that hold several documents, each numbered as if it were alone: ``[axes, B, S]``.

    ``documents`` ``[B, S]`` numbers the document of each token; a negative number is padding, which gets
    ``rule.padding``. The rest is as in `from_kinds`: the grids are those of all documents, in order. ``text_axis`` puts
    one more row in front, the token's place in its document, ``[1 + axes, B, S]``: Qwen's models find the documents by
    it when they build their mask.

    Raises ``ValueError`` where a document does not lie in one piece, and where tokens and grids do not match.

    >>> documents = torch.tensor([[0, 0, 0, 1, 1, -1]])
    >>> packed = pack(torch.tensor([[0, 1, 1, 1, 0, 0]]), Rule(merge=1), documents,
    ...               image_grids=torch.tensor([[1, 2, 1], [1, 1, 1]]))
    >>> packed.positions[:, 0].tolist(), packed.offsets.tolist()
    ([[0, 1, 1, 0, 1, 0], [0, 1, 2, 0, 1, 0], [0, 1, 1, 0, 1, 0]], [0, 0])
    """
    kinds, documents = integers("kinds", kinds, 2, "[batch, seq]"), integers("documents", documents, 2, "[batch, seq]")
    if documents.shape != kinds.shape:
        raise ValueError(f"documents must have the shape {tuple(kinds.shape)} of kinds, got {tuple(documents.shape)}")
    pieces = _pieces(documents)
    longest = max((stop - start for _, start, stop in pieces), default=0)
    rows, mask = (torch.zeros(len(pieces), longest, dtype=torch.int64, device=kinds.device) for _ in range(2))
    for i, (row, start, stop) in enumerate(pieces):
        rows[i, : stop - start], mask[i, : stop - start] = kinds[row, start:stop], 1
    placed = _placed(rows, rule, image_grids, video_grids, seconds, mask.bool(), alone=True)
    if text_axis:
        places = torch.arange(longest, device=kinds.device).expand(1, len(pieces), -1)
        placed = placed._replace(positions=torch.cat([places.to(placed.positions), placed.positions]))
    shape = (len(placed.positions), *kinds.shape)
    positions = torch.full(shape, rule.padding, dtype=placed.positions.dtype, device=kinds.device)
    for i, (row, start, stop) in enumerate(pieces):
        positions[:, row, start:stop] = placed.positions[:, i, : stop - start]
    return Packed(positions, placed.offset[:, 0])


def _pieces(documents: Tensor) -> list[tuple[int, int, int]]:
    """Row, start and end of every document, in order."""
    pieces, seen = [], set()
    for row, numbers in enumerate(documents.tolist()):
        start = 0
        for number, group in groupby(numbers):
            stop = start + len(list(group))
            if number >= 0:
                if number in seen:
                    raise ValueError(
                        f"documents must give every document one piece of one row, got {number} again at row {row}, "
                        f"token {start}; number the documents of the whole batch"
                    )
                seen.add(number)
                pieces.append((row, start, stop))
            start = stop
    return pieces


def _images(grids: Tensor | None, rule: Rule) -> list[Video]:
    sizes = [] if grids is None else grid_sizes("image_grids", grids)
    for i, (frames, _, _) in enumerate(sizes):
        if frames != 1:
            raise ValueError(f"image_grids[{i}] must have one frame, got {frames}; frames belong to video_grids")
    return [_merged(f"image_grids[{i}]", size, 1, rule) for i, size in enumerate(sizes)]


def _videos(grids: Tensor | None, seconds: Tensor | Sequence[float] | None, rule: Rule) -> list[Video]:
    """Merged videos, or their single frames where the rule takes each alone."""
    sizes = [] if grids is None else grid_sizes("video_grids", grids)
    gaps = [1.0] * len(sizes) if seconds is None else [float(gap) for gap in seconds]
    if len(gaps) != len(sizes):
        raise ValueError(f"seconds must hold one number per video, got {len(gaps)} for {len(sizes)} videos")
    videos = [_merged(f"video_grids[{i}]", size, rule.frame_merge, rule) for i, size in enumerate(sizes)]
    if rule.per_frame:
        return [replace(video, frames=1) for video in videos for _ in range(video.frames)]
    return [replace(video, seconds=gap) for video, gap in zip(videos, gaps, strict=True)]


def _merged(name: str, size: list[int], frames: int, rule: Rule) -> Video:
    parts = (frames, rule.merge, rule.merge)
    if any(n % part for n, part in zip(size, parts, strict=True)):
        raise ValueError(f"{name} must be a multiple of the patches of one token, {parts}, got {tuple(size)}")
    return Video(*(n // part for n, part in zip(size, parts, strict=True)))


class Media:
    """The images and videos of a batch, taken one after the other.

    >>> Media([Video(1, 2, 2)], []).take(IMAGE)
    Video(frames=1, height=2, width=2, seconds=1.0, audio=0)
    """

    def __init__(self, images: Sequence[Video], videos: Sequence[Video]) -> None:
        self.left = {IMAGE: list(images), VIDEO: list(videos)}

    def take(self, kind: int) -> Video:
        if not self.left[kind]:
            raise ValueError(f"{NAMES[kind]} must hold a grid for every run of kind {kind}, got too few")
        return self.left[kind].pop(0)

    def check_used_up(self) -> None:
        for kind, left in self.left.items():
            if left:
                raise ValueError(
                    f"{NAMES[kind]} must hold as many grids as kinds has tokens for, got {len(left)} too many "
                    "(frames, where the rule takes each alone)"
                )


def row_segments(kinds: Sequence[int], media: Media, rule: Rule) -> list[int | Video]:
    """The segments of a row without padding. A run holds one grid, or several back to back.

    >>> row_segments([0, 0, 1, 1, 0], Media([Video(1, 1, 2)], []), Rule())
    [2, Video(frames=1, height=1, width=2, seconds=1.0, audio=0), 1]
    """
    segments: list[int | Video] = []
    closing = 0  # marks after a video with sound, which belong to it
    for stream, group in groupby(kinds, STREAMS.__getitem__):
        run = list(group)
        sound = run.count(AUDIO)
        if stream != TEXT:
            _without(0, closing)
        if stream == TEXT or sound == len(run):
            segments.append(_without(len(run), closing))
            closing = 0
        elif sound:
            video = media.take(VIDEO)
            _check(VIDEO, video, len(run) - sound, rule)
            segments[-1:] = [_without(segments[-1] if segments else 0, 2), replace(video, audio=sound)]
            closing = 2
        else:
            segments += _grids(stream, len(run), media, rule)
    if closing:
        _without(0, closing)
    return [segment for segment in segments if segment]


def _grids(kind: int, length: int, media: Media, rule: Rule) -> list[int | Video]:
    """The grids that fill a run of ``length`` tokens."""
    segments: list[int | Video] = []
    while length > 0:
        video = media.take(kind)
        if rule.after == "tokens" and length == tokens(video, rule) + 2:  # HunyuanVL counts its two marks in
            return [*segments, 1, video, 1]
        length -= tokens(video, rule)
        segments.append(video)
    if length < 0:
        _check(kind, video, length + tokens(video, rule), rule)
    return segments


def _check(kind: int, video: Video, length: int, rule: Rule) -> None:
    if length != tokens(video, rule):
        raise ValueError(
            f"kinds must hold as many tokens as {NAMES[kind]} says: a grid of {video.frames} x {video.height} x "
            f"{video.width} merged patches takes {tokens(video, rule)}, got {length}"
        )


def _without(run: int | Video, marks: int) -> int:
    if not isinstance(run, int) or run < marks:
        raise ValueError("kinds must hold two tokens of text before and after a video mixed with sound (its marks)")
    return run - marks
