"""The choices in which models differ that put text, images, video and sound into one sequence (M-RoPE)."""

from dataclasses import dataclass
from typing import Literal

from ..support.checks import flag, number, whole

CHOICES = {
    "after": ("plane", "largest", "tokens"),
    "time": ("frames", "interval", "clock"),
    "mix": (None, "chunks", "time"),
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How one family numbers its tokens, as data. Text, and sound, has the same number on all axes and counts up.

    Size
      - ``merge``: patches per side that become one token (``spatial_merge_size``); ``frame_merge``: frames that do.

    Where what follows an image or a video starts
      - ``after="plane"``: at its start plus ``max(height, width)``, however many frames it has (most shipped code).
      - ``after="largest"``: one past its largest coordinate (the Qwen2-VL paper; Qwen-Omni).
      - ``after="tokens"``: text counts tokens, as if there were no axes. An image then has coordinates of its own,
        ``(column, row, number of the image)``, after the number of the token; each row ends with a token for the line
        break (HunyuanVL).

    Time of frame ``i``
      - ``per_frame``: each frame stands alone, with its time written out as text between frames (Qwen3-VL, GLM-4V).
      - ``time="frames"``: ``i``; ``"interval"``: ``i * (rate * seconds)``; ``"clock"``: ``(i * seconds) * rate``, in
        float32, where the order decides about rounding. ``rate``: positions per second. ``whole``: rounded down;
        otherwise positions are float32 (Qwen3-Omni) and need a spec with ``coordinates="real"``.

    Video with its sound
      - ``mix="chunks"``: in turns of ``chunk`` seconds, first video, then sound; ``"time"``: sorted by time, video
        first. ``shared_marks``: the two marks before such a video have one number, and so do the two after it.

    Rest
      - ``axes``: rows of the result. ``padding``: the number of tokens that the mask leaves out.

    >>> Rule(time="interval", rate=4).rate  # Qwen2.5-VL: four positions per second
    4
    """

    merge: int = 2
    frame_merge: int = 1
    after: Literal["plane", "largest", "tokens"] = "plane"
    per_frame: bool = False
    time: Literal["frames", "interval", "clock"] = "frames"
    rate: float = 1
    whole: bool = True
    mix: Literal["chunks", "time"] | None = None
    chunk: float = 2
    shared_marks: bool = False
    axes: int = 3
    padding: int = 0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        for name in ("per_frame", "whole", "shared_marks"):
            flag(name, getattr(self, name))
        whole("merge", self.merge)
        whole("frame_merge", self.frame_merge)
        whole("axes", self.axes, at_least=3)
        whole("padding", self.padding, at_least=0)
        number("rate", self.rate, above=0)
        number("chunk", self.chunk, above=0)
        if self.mix == "chunks" and self.rate * self.chunk < 1:
            raise ValueError(f"chunk must hold at least one position, got {self.chunk} seconds at rate {self.rate}")
        if self.axes > 3 and self.after != "tokens":
            raise ValueError(f"axes must be 3 (time, height, width) unless after is 'tokens', got {self.axes}")


PAPER = Rule(after="largest")  # arXiv:2409.12191, section 2.1
