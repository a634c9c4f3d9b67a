"""The orders of axes that tensors come in."""

from typing import Any, Literal

import torch
from torch import Tensor

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


def unflat(name: str, x: Any, head_dim: int, tensor_format: str, num_heads: int | None = None) -> Any:
    """``[..., heads * head_dim] -> [..., heads, head_dim]``, a view; None stays None."""
    if x is None or not isinstance(x, Tensor):
        return x
    if tensor_format == "bhsd":
        raise ValueError("tensor_format must be 'bshd', 'sbhd' or 'thd' with num_heads (flat heads), got 'bhsd'")
    width = x.shape[-1] if x.ndim else 0
    if width % head_dim or num_heads not in (None, width // head_dim):
        heads = "a multiple of" if num_heads is None else f"num_heads={num_heads} times"
        raise ValueError(f"{name} must have {heads} head_dim={head_dim} channels, got {width} (shape {tuple(x.shape)})")
    return torch.unflatten(x, -1, (-1, head_dim))
