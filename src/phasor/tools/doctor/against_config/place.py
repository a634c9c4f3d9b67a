"""Where the tables of a module part from those of a spec: how far, from which position and pair on."""

import torch
from torch import Tensor, nn

from ....rotary.spec import RotarySpec
from ...golden.tensors import PER_RADIAN, TABLE
from .module_tables import ModuleTables, expected, tables_of_module

BLOCK = 4096  # positions that are looked at together


def first_difference(
    module: nn.Module, layer_type: str | None, spec: RotarySpec, theirs: ModuleTables, positions: Tensor
) -> tuple[float, float | None, int | None]:
    """Size, first position (along the axis of its pair) and first pair; ``theirs`` are the tables at ``positions``."""
    apart, wrong = wrong_at(theirs, spec, positions)
    size = apart.max().item()
    if not wrong.any():
        return size, None, None
    order = positions.amax(0).argsort(stable=True)
    row = int(order[wrong[order].any(1).nonzero()[0]])
    pair = int(wrong[row].nonzero()[0])
    axis = spec.axes.axis_of_pair(spec.pairs)[pair] if spec.axes.count > 1 else 0
    coarse = float(positions[axis, row])
    if spec.coordinates == "real":
        return size, coarse, pair
    # every position up to there, all axes alike
    for start in range(0, int(coarse), BLOCK):
        at = torch.arange(start, min(start + BLOCK, int(coarse))).expand(spec.axes.count, -1)
        block = tables_of_module(module, layer_type, spec, at)
        if block is None or block.pairs != spec.pairs:
            break
        wrong = wrong_at(block, spec, at)[1]
        if wrong.any():
            row = int(wrong.any(1).nonzero()[0])
            return size, float(at[0, row]), int(wrong[row].nonzero()[0])
    return size, coarse, pair


def wrong_at(theirs: ModuleTables, spec: RotarySpec, positions: Tensor, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """``[S, P]``: how far cos and sin are off, and whether that is more than float32 angles may be.

    ``eps``: the rounding step of tables in half precision, which may be off by so much more.
    """
    cos, sin = expected(spec, positions)
    apart = torch.maximum((theirs.cos - cos).abs(), (theirs.sin - sin).abs()).nan_to_num(torch.inf)
    inside = spec.scaling.trained_length if spec.length_dependent and spec.scaling else None
    shares = torch.tensor(spec.axes.weights(spec.pairs), dtype=torch.float64)
    angles = torch.einsum("as,ap,p->sp", positions.abs().double(), shares.abs(), spec.inv_freq(inside).double())
    factor = spec.attention_factor(inside)
    return apart, apart > (TABLE + eps + PER_RADIAN * angles * spec.position_scale) * factor
