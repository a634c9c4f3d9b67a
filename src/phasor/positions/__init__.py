"""Builders of positions: one per token (and axis), said aloud instead of assumed.

A rotation is only as right as its positions. Each builder covers one case where a plain ``arange`` is wrong;
`check` finds out which one a batch got wrong.
"""

from .canvas import from_canvas
from .checking import Finding, Findings, check
from .grids import centres, grid, patches
from .kinds import from_kinds, token_kinds
from .mrope import Placed, from_segments, mrope
from .rows import from_mask, packed, text
from .rules import Rule
from .runs import AUDIO, IMAGE, TEXT, VIDEO
from .segments import Segment, Video
from .steps import decode, decode_from

__all__ = [
    "AUDIO",
    "IMAGE",
    "TEXT",
    "VIDEO",
    "Finding",
    "Findings",
    "Placed",
    "Rule",
    "Segment",
    "Video",
    "centres",
    "check",
    "decode",
    "decode_from",
    "from_canvas",
    "from_kinds",
    "from_mask",
    "from_segments",
    "grid",
    "mrope",
    "packed",
    "patches",
    "text",
    "token_kinds",
]
