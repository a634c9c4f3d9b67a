"""Builders of positions: one integer per token (and axis), stated instead of assumed to be 0, 1, 2, and so on.

A rotation is only as right as its positions. Each builder covers one case where a plain ``arange`` is wrong;
`check` finds out which one a batch got wrong.
"""

from typing import TYPE_CHECKING

from ..support.later import later
from .rules import Rule

if TYPE_CHECKING:
    from .canvas import from_canvas
    from .checking import Findings, PositionFinding, check, check_shards
    from .grids import centres, grid, patches
    from .multimodal import AUDIO, IMAGE, TEXT, VIDEO, Packed, from_kinds, pack, token_kinds
    from .pictures import pictures
    from .rows import decode, decode_from, from_mask, packed, text
    from .segments import Placed, Segment, Video, from_segments, mrope
    from .shards import gather, shard, shard_order

__getattr__, __dir__ = later(
    __name__,
    {
        **dict.fromkeys(("Findings", "PositionFinding", "check", "check_shards"), ".checking"),
        **dict.fromkeys(("centres", "grid", "patches"), ".grids"),
        **dict.fromkeys(("Placed", "Segment", "Video", "from_segments", "mrope"), ".segments"),
        **dict.fromkeys(
            ("AUDIO", "IMAGE", "TEXT", "VIDEO", "Packed", "from_kinds", "pack", "token_kinds"), ".multimodal"
        ),
        **dict.fromkeys(("decode", "decode_from", "from_mask", "packed", "text"), ".rows"),
        **dict.fromkeys(("gather", "shard", "shard_order"), ".shards"),
        "from_canvas": ".canvas",
        "pictures": ".pictures",
    },
)

__all__ = [
    "AUDIO",
    "IMAGE",
    "TEXT",
    "VIDEO",
    "Findings",
    "Packed",
    "Placed",
    "PositionFinding",
    "Rule",
    "Segment",
    "Video",
    "centres",
    "check",
    "check_shards",
    "decode",
    "decode_from",
    "from_canvas",
    "from_kinds",
    "from_mask",
    "from_segments",
    "gather",
    "grid",
    "mrope",
    "pack",
    "packed",
    "patches",
    "pictures",
    "shard",
    "shard_order",
    "text",
    "token_kinds",
]
