"""The planes of position_ids: ``[planes, B, S]`` out of every shape that is right, and a name for every other one."""

from itertools import permutations

import torch
from torch import Tensor

from .findings import Finding

HALF = {torch.bfloat16: 256, torch.float16: 2048}  # the integers up to here are exact


def planes_of(ids: Tensor, positions: Tensor, count: int, text_plane: bool) -> tuple[Tensor | None, list[Finding]]:
    """``[count, B, S]``, a view, and what is wrong with the shape or the dtype; None where nothing can be compared."""
    rows, length = ids.shape
    wanted = _shape(count, rows, length)
    found = _dtype(positions)
    if positions.dtype == torch.bool:
        return None, found
    if positions.shape in _right(count, rows, length):
        given = positions.reshape(count, -1, length) if positions.ndim != 2 or count > 1 else positions[None]
        return given.expand(count, rows, length), found
    return None, [*found, _shape_finding(positions, wanted, count, rows, length, text_plane)]


def _right(count: int, rows: int, length: int) -> list[tuple[int, ...]]:
    """The shapes that are right: one row may stand for all of them."""
    bare = [(rows, length), (1, length), (length,)]
    return bare if count == 1 else [(count, *shape) for shape in (bare if rows == 1 else bare[:2])]


def _shape(count: int, rows: int, length: int) -> str:
    return f"[{rows}, {length}]" if count == 1 else f"[{count}, {rows}, {length}]"


def _shape_finding(positions: Tensor, wanted: str, count: int, rows: int, length: int, text_plane: bool) -> Finding:
    shape, got = tuple(positions.shape), str(list(positions.shape))
    full = (count, rows, length)
    if text_plane and shape in _right(count - 1, rows, length):
        return Finding(
            "plane of the text missing", None, None,
            f"{got} where {wanted} is needed: without the first plane, which numbers the text of each document, the "
            "mask between packed documents is off without a word",
            "put the plain positions before the others, torch.cat([positions.packed(...).view(1, 1, -1), ids])",
        )  # fmt: skip
    if count > 1 and shape in _right(1, rows, length):
        return Finding(
            "planes missing", None, None,
            f"{got} where {wanted} is needed: the model takes {count} planes of positions",
            f"for text positions.text(position_ids, {count}), with images positions.from_kinds",
        )  # fmt: skip
    if count == 1 and len(shape) == 3 and shape[1:] in ((rows, length), (1, length)):
        return Finding(
            "too many planes", None, None,
            f"{got} where {wanted} is needed: the model takes one plane, and reads {shape[0]} of them as more rows",
            "give the first plane, or say axes= if the model has several",
        )  # fmt: skip
    if len(shape) == 3 and any(tuple(shape[i] for i in order) == full for order in permutations(range(3))):
        order = next(o for o in permutations(range(3)) if tuple(shape[i] for i in o) == full)
        return Finding(
            "planes in another place", None, None, f"{got} where {wanted} is needed: planes come first",
            f"position_ids.permute{order}" + (", or stack the samples along dim=1" if order == (1, 0, 2) else ""),
        )  # fmt: skip
    if shape and shape[-1] != length:
        return Finding(
            "not padded with their ids", 0, min(shape[-1], length),
            f"{shape[-1]} positions for {length} tokens in a row",
            "pad or cut position_ids in the same step as input_ids",
        )  # fmt: skip
    return Finding("shape", None, None, f"{got} where {wanted} is needed", "give one position for each token")


def _dtype(positions: Tensor) -> list[Finding]:
    if positions.dtype in HALF:
        why = f"{positions.dtype} holds integers up to {HALF[positions.dtype]} only, so later positions fall together"
    elif positions.dtype == torch.bool or positions.dtype in (torch.uint8, torch.int8):
        why = f"{positions.dtype} ends at {1 if positions.dtype == torch.bool else torch.iinfo(positions.dtype).max}"
    else:
        return []
    return [Finding("dtype", None, None, why, "keep positions as int64 until they are turned into angles")]
