"""The orders of axes in which heads and tokens come."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Order:
    """The order of axes: where heads and tokens are, counted from the end; batch sizes are what remains in front.

    ``batch`` is the axis of the one batch that stands behind the tokens, if it does (``"sbhd"``).
    """

    heads: int
    tokens: int
    batch: int | None = None

    def batch_of(self, x: Tensor) -> torch.Size:
        """The sizes of the batch axes of ``x``."""
        return x.shape[:-3] if self.batch is None else x.shape[self.batch : self.heads]

    def line_up(self, tables: tuple[Tensor, Tensor], per_head: bool) -> tuple[Tensor, Tensor]:
        """Views of ``[(B,) (H,) S, P]`` that broadcast to tensors of this order."""
        cos, sin = tables
        if cos.ndim == 2 and self.heads < self.tokens:  # batch and heads stand in front
            return cos, sin
        if not per_head:
            cos, sin = cos.unsqueeze(self.heads), sin.unsqueeze(self.heads)
        elif self.heads == -2:
            cos, sin = cos.transpose(-3, -2), sin.transpose(-3, -2)
        if self.batch is None:
            return cos, sin
        if cos.ndim == 3:  # [S, H, P]
            return cos.unsqueeze(-3), sin.unsqueeze(-3)
        return cos.transpose(-4, -3), sin.transpose(-4, -3)


ORDERS: dict[str, Order] = {  # by tensor_format
    "bhsd": Order(heads=-3, tokens=-2),
    "bshd": Order(heads=-2, tokens=-3),
    "sbhd": Order(heads=-2, tokens=-4, batch=-3),
    "thd": Order(heads=-2, tokens=-3),
}


def format_of(order: Order) -> str:
    """A ``tensor_format`` with this order of axes."""
    return next(name for name, known in ORDERS.items() if known == order)
