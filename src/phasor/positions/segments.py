"""What a sequence with images, video and sound is made of."""

from dataclasses import dataclass
from typing import TypeAlias

from ..support.checks import number, whole


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


def as_segment(name: str, value: object) -> int | Video:
    """A number of tokens, or the `Video` that ``(height, width)`` and ``(frames, height, width)`` stand for.

    >>> as_segment("segments[0]", (3, 4))
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
