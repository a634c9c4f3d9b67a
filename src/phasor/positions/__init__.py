"""Builders of positions: one per token (and axis), said aloud instead of assumed.

A rotation is only as right as its positions. Each builder covers one case where a plain ``arange`` is wrong;
`check` finds out which one a batch got wrong.
"""

from .canvas import from_canvas
from .checking import Findings, PositionFinding, check
from .grids import centres, grid, patches
from .mrope import Placed, Segment, Video, from_segments, mrope
from .multimodal import AUDIO, IMAGE, TEXT, VIDEO, from_kinds, token_kinds
from .rows import decode, decode_from, from_mask, packed, text
from .rules import Rule

Finding = PositionFinding  # under the name by which it is known outside

__all__ = [
    "AUDIO",
    "IMAGE",
    "TEXT",
    "VIDEO",
    "Finding",
    "Findings",
    "Placed",
    "PositionFinding",
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
