"""Builders of positions: one integer per token (and axis), stated instead of assumed to be 0, 1, 2, and so on.

A rotation is only as right as its positions. Each builder covers one case where a plain ``arange`` is wrong;
`check` finds out which one a batch got wrong.
"""

from importlib import import_module
from typing import Any

from .checking import Findings, PositionFinding, check, check_shards
from .grids import centres, grid, patches
from .mrope import Placed, Segment, Video, from_segments, mrope
from .multimodal import AUDIO, IMAGE, TEXT, VIDEO, Packed, from_kinds, pack, token_kinds
from .rows import decode, decode_from, from_mask, packed, text
from .rules import Rule
from .shards import gather, shard, shard_order

Finding = PositionFinding  # under the name by which it is known outside

# The positions of a single model live beside its row, in a wing above this one, and are imported when asked for.
OF_ONE_MODEL = {"from_canvas": "models.families.minicpm"}


def __getattr__(name: str) -> Any:
    if name in OF_ONE_MODEL:
        return getattr(import_module(f"..{OF_ONE_MODEL[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AUDIO",
    "IMAGE",
    "TEXT",
    "VIDEO",
    "Finding",
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
    "shard",
    "shard_order",
    "text",
    "token_kinds",
]
