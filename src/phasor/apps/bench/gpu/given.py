"""What a case turns on a device: q, k, and the rows of a table that its tokens take."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ....rotary.rotation import Rotation
from ....rotary.spec import RotarySpec
from ..case import Setting
from ..transformers import by_channel


@dataclass(frozen=True)
class Given:
    """``q`` and ``k`` ``[B, heads, S, D]``; token ``i`` of sequence ``b`` takes row ``first[b] + i`` of a table.

    ``rows`` are the positions of that table, ``[max]`` or ``[axes, max]``.
    """

    setting: Setting
    spec: RotarySpec
    q: Tensor
    k: Tensor
    rows: Tensor
    first: Tensor

    @property
    def counted(self) -> bool:
        """Whether all sequences begin with the first row."""
        return self.length == self.rows.shape[-1]

    @property
    def length(self) -> int:
        return self.q.shape[-2]

    @cached_property
    def taken(self) -> Tensor:
        """``[S]`` rows, or ``[B, S]``."""
        steps = torch.arange(self.length, device=self.q.device)
        return steps if self.counted else self.first.unsqueeze(-1) + steps

    @cached_property
    def positions(self) -> Tensor:
        """Of the tokens, as phasor takes them."""
        return self.rows[..., self.taken]

    @cached_property
    def table(self) -> Rotation:
        """All rows, cos and sin in float32."""
        return Rotation.at(self.spec, self.rows)

    def by_channel(self, table: Tensor) -> Tensor:
        """``[..., P]`` with every value twice, in the order of the pairs."""
        return by_channel(table, self.spec.interleaved)

    def tokens_first(self) -> tuple[Tensor, Tensor]:
        """q and k as ``[B, S, heads, D]``, of their own: some libraries write in place."""
        q, k = (x.detach().transpose(1, 2).clone(memory_format=torch.contiguous_format) for x in (self.q, self.k))
        return q.requires_grad_(self.q.requires_grad), k.requires_grad_(self.k.requires_grad)


def text(setting: Setting, batch: int, length: int, gradient: bool = False) -> Given:
    """32 and 8 heads of 128, one axis; with more than one sequence each begins at a position of its own."""
    spec = setting.spec(128)
    q, k = (x.requires_grad_(gradient) for x in setting.pair(batch, 32, 8, length, 128))
    first = torch.arange(batch) * 61 + (4096 if length == 1 else 0)
    rows = torch.arange(int(first.max()) + length)
    return Given(setting, spec, q, k, rows.to(setting.device), first.to(setting.device))
