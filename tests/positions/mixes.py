"""Random sequences of text, images, videos and sound, built token by token as processors build them."""

import random
from dataclasses import dataclass, field

from torch import Tensor, tensor

TEXT_ID, IMAGE_ID, VIDEO_ID, AUDIO_ID, VISION_START, VISION_END, AUDIO_START, AUDIO_END, PAD = (
    5,
    90,
    91,
    92,
    1,
    2,
    3,
    4,
    0,
)
KIND_OF = {IMAGE_ID: 1, VIDEO_ID: 2, AUDIO_ID: 3}


@dataclass
class Mix:
    """One batch: ids and masks as rows, and what the model is told beside them."""

    ids: list[list[int]] = field(default_factory=list)
    mask: list[list[int]] = field(default_factory=list)
    images: list[list[int]] = field(default_factory=list)
    videos: list[list[int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sounds: list[int] = field(default_factory=list)

    def input_ids(self) -> Tensor:
        return tensor(self.ids)

    def kinds(self) -> Tensor:
        return tensor([[KIND_OF.get(token, 0) for token in row] for row in self.ids])

    def attention_mask(self) -> Tensor:
        return tensor(self.mask)

    def image_grids(self) -> Tensor | None:
        return tensor(self.images) if self.images else None

    def video_grids(self) -> Tensor | None:
        return tensor(self.videos) if self.videos else None


def random_mix(
    seed: int,
    *,
    merge: int = 2,
    frame_merge: int = 1,
    kinds: str = "tiv",
    per_frame: bool = False,
    line_break: bool = False,
    seconds: tuple[float, ...] = (1.0,),
    rows: int = 3,
    padding: str = "both",
) -> Mix:
    """``kinds``: t text, i image, v video, a sound, m video with its sound. Media stand between their marks."""
    draw, mix, made = random.Random(seed), Mix(), []
    for _ in range(rows):
        row = [TEXT_ID] * draw.randint(0, 3)
        for kind in draw.choices(kinds, k=draw.randint(1, 5)):
            row += _piece(kind, draw, mix, merge, frame_merge, per_frame, line_break, seconds)
        made.append(row + [TEXT_ID] * draw.randint(0 if row else 2, 4))
    length = max(map(len, made))
    for row in made:
        missing = length - len(row)
        before = {"left": missing, "right": 0, "both": draw.randint(0, missing)}[padding]
        mix.ids.append([PAD] * before + row + [PAD] * (missing - before))
        mix.mask.append([0] * before + [1] * len(row) + [0] * (missing - before))
    return mix


def _piece(kind, draw, mix, merge, frame_merge, per_frame, line_break, seconds) -> list[int]:
    h, w = draw.randint(1, 4), draw.randint(1, 4)
    frames = draw.choice((1, 2, 3, 9))
    sound = draw.randint(1, 40)
    if kind == "t":
        return [TEXT_ID] * draw.randint(1, 6)
    if kind == "a":
        mix.sounds.append(sound)
        return [AUDIO_START] + [AUDIO_ID] * sound + [AUDIO_END]
    if kind == "i":
        mix.images.append([1, h * merge, w * merge])
        return [VISION_START] + [IMAGE_ID] * (h * (w + line_break)) + [VISION_END]
    mix.videos.append([frames * frame_merge, h * merge, w * merge])
    mix.seconds.append(draw.choice(seconds))
    if kind == "m":
        mix.sounds.append(sound)
        mixed = [VIDEO_ID] * (frames * h * w - 1) + [AUDIO_ID] * sound
        draw.shuffle(mixed)  # the models look at their numbers only
        return [VISION_START, AUDIO_START, VIDEO_ID, *mixed, AUDIO_END, VISION_END]
    if per_frame:  # a time stamp and marks around each frame
        one = [VISION_START] + [VIDEO_ID] * (h * w) + [VISION_END]
        return [token for _ in range(frames) for token in [TEXT_ID] * draw.randint(0, 3) + one]
    return [VISION_START] + [VIDEO_ID] * (frames * h * w) + [VISION_END]
