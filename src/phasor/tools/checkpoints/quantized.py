"""Quantized weights: scales that follow their rows, and containers whose rows cannot be permuted in place."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...models.weights import Shapes, Weights
from .permutation import Order
from .stored import Tensor

ROW_SCALES = (".weight_scale", ".weight_scale_inv")
SCALES = (*ROW_SCALES, ".input_scale", ".k_scale", ".v_scale", ".q_scale")  # the last ones are single numbers
PACKED = {
    "qweight": "GPTQ or AWQ: several rows share one integer",
    "qzeros": "GPTQ or AWQ: several rows share one integer",
    "weight_packed": "compressed-tensors: packed integers",
    "weight_scale_2": "NVFP4: two levels of scales",
    "absmax": "bitsandbytes: blocks run across rows",
    "SCB": "bitsandbytes: scales in a second tensor",
}


def refuse_quantized(folder: Path, shapes: Shapes, weights: Weights) -> None:
    """Raises ``ValueError`` for a projection of q or k in a container whose rows are not rows of bytes."""
    modules = {name.rstrip(".") for rows in weights.rows for name in rows.name.split("|")}
    for tensor in shapes:
        for word, why in PACKED.items():
            before, found, _ = tensor.partition(f".{word}")
            if found and any(before.removesuffix(".weight").endswith(f".{module}") for module in modules):
                raise ValueError(
                    f"{folder}: {tensor}: the rows of a quantized weight must be rows of bytes to be permuted exactly, "
                    f"got {why}; convert the weights before they are quantized"
                )


def row_scales(name: str, tensors: Collection[str]) -> list[str]:
    """The tensors that hold the scales of a weight's rows."""
    return [scale for ending in ROW_SCALES if (scale := name.removesuffix(".weight") + ending) in tensors]


def scales_of(
    folder: Path, name: str, axis: int, order: Order, tensors: Mapping[str, Tensor], blocks: Any
) -> dict[str, Order]:
    """The scales beside a weight that change with the order of its rows: name -> order.

    One scale per tensor stays; one per row follows its row; one per block of rows stays if no row leaves its block.
    Raises ``ValueError`` where one does, and for scales of another shape.
    """
    moved = {}
    for scale in row_scales(name, tensors):
        shape, rows = tensors[scale].shape, tensors[name].shape[0]
        if axis != 0:
            raise ValueError(f"{folder}: {scale}: scales of a weight whose columns move are not known")
        if shape in ((), (1,), (1, 1)):
            continue
        if shape in ((rows,), (rows, 1)):
            moved[scale] = order
            continue
        side = blocks[0] if isinstance(blocks, list) and blocks and isinstance(blocks[0], int) else 0
        if side < 1 or len(shape) != 2 or shape[0] != -(-rows // side):
            raise ValueError(
                f"{folder}: {scale}: must be one scale, one for each of {rows} rows, or one for each block of "
                f"quantization_config.weight_block_size, got shape {list(shape)} and blocks {blocks!r:.40}"
            )
        if (np.arange(rows) // side != order // side).any():
            raise ValueError(
                f"{folder}: {scale}: every row must stay in its block of {side} rows that share a scale, and the "
                "heads straddle them; convert the weights before they are quantized"
            )
    return moved
