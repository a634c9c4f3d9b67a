"""From the kinds of the tokens of one row to its segments: grids fill the runs of images and videos."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from .mrope import tokens
from .rules import Rule
from .segments import Video

TEXT, IMAGE, VIDEO, AUDIO = range(4)
STREAMS = {TEXT: TEXT, IMAGE: IMAGE, VIDEO: VIDEO, AUDIO: VIDEO}  # nothing lies between a video and its own sound


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


NAMES = {IMAGE: "image_grids", VIDEO: "video_grids"}


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
    found: list[int | Video] = []
    while length > 0:
        video = media.take(kind)
        if rule.after == "tokens" and length == tokens(video, rule) + 2:  # HunyuanVL counts its two marks in
            return [*found, 1, video, 1]
        length -= tokens(video, rule)
        found.append(video)
    if length < 0:
        _check(kind, video, length + tokens(video, rule), rule)
    return found


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
