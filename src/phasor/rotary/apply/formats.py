"""The orders of axes that tensors come in."""

from typing import Any, Literal

from ...support.checks import one_of
from ..kernels import ORDERS, Order

TensorFormat = Literal["bhsd", "bshd", "sbhd", "thd"]

SHAPES = {
    "bhsd": "[..., heads, seq, head_dim]",
    "bshd": "[..., seq, heads, head_dim]",
    "sbhd": "[seq, batch, heads, head_dim]",
    "thd": "[tokens, heads, head_dim]",
}
RANKS = {"sbhd": 4, "thd": 3}  # the others may have any number of batch sizes


def order_of(tensor_format: Any) -> Order:
    if tensor_format not in ORDERS:
        one_of("tensor_format", tensor_format, tuple(ORDERS))
    return ORDERS[tensor_format]
