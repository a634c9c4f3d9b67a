"""Layout: which channels of a head rotate, and how they hold P two-dimensional pairs.

::

    halves       [x0 x1 x2 | y0 y1 y2]    GPT-NeoX, transformers' Llama    "rotate_half", is_neox_style, GPT-NeoX style
    interleaved  [x0 y0 | x1 y1 | x2 y2]  RoFormer, Meta's Llama, GPT-J    complex form, "traditional", GPT-J style
    2 blocks     [x0 x1 y0 y1 | x2 x3 y2 y3]    ChatGLM-6B, Gemma 4's vision tower    halves inside each block

The rotation is the same in all; only which channels form pair i differs. Weights trained in one layout give garbage in
another unless the rows of their q and k projections are permuted alike (`Layout.permutation`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..support.checks import flag, whole

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which channels of a head rotate and which two form a pair, as plain, hashable data.

    - ``head_dim``: channels of one head; ``rotary_dim`` of them rotate (default: all), the first ones, or the last ones
      if ``trailing``.
    - ``interleaved``: pairs are channels ``(2i, 2i + 1)``; otherwise halves, ``(i, i + rotary_dim / 2)``, inside each
      of ``blocks`` equal blocks (pairs are numbered block by block).
    - ``permuted``: the result is written in the other one of the two, halves for interleaved and the reverse.

    Raises ``ValueError`` for an odd or oversized ``rotary_dim`` and for blocks that do not hold whole pairs.

    >>> import torch
    >>> Layout(head_dim=6, rotary_dim=4, interleaved=True).split(torch.arange(6))
    (tensor([0, 2]), tensor([1, 3]))
    """

    head_dim: int
    rotary_dim: int = None  # type: ignore[assignment]  # replaced by head_dim
    trailing: bool = False
    interleaved: bool = False
    blocks: int = 1
    permuted: bool = False

    def __post_init__(self) -> None:
        if self.rotary_dim is None:
            object.__setattr__(self, "rotary_dim", self.head_dim)
        for name in ("rotary_dim", "head_dim"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name} must be an integer, got {value!r}")
        if self.rotary_dim == self.head_dim and self.head_dim > 2 and self.head_dim % 2:
            raise ValueError(
                f"head_dim must be even if all its channels rotate (they rotate in pairs), got {self.head_dim}; "
                f"give rotary_dim, {self.head_dim - 1} or less, if one passes"
            )
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise ValueError(
                f"rotary_dim must be a positive even number (channels rotate in pairs), got {self.rotary_dim}"
            )
        if self.rotary_dim > self.head_dim:
            raise ValueError(
                f"rotary_dim must be at most head_dim, got rotary_dim={self.rotary_dim} and head_dim={self.head_dim}"
            )
        for name in ("trailing", "interleaved", "permuted"):
            flag(name, getattr(self, name))
        whole("blocks", self.blocks)
        if self.blocks > 1 and (self.interleaved or self.permuted):
            raise ValueError(f"blocks must be 1 for interleaved pairs, which they do not change, got {self.blocks}")
        if self.pairs % self.blocks:
            raise ValueError(
                f"blocks must divide rotary_dim / 2 = {self.pairs} (each holds whole pairs), got {self.blocks}"
            )

    @property
    def pairs(self) -> int:
        """The number of pairs that rotate, ``rotary_dim / 2``."""
        return self.rotary_dim // 2

    @property
    def turning(self) -> slice:
        """The channels of a head that rotate.

        >>> Layout(head_dim=192, rotary_dim=64, trailing=True).turning
        slice(128, 192, None)
        """
        return slice(self.head_dim - self.rotary_dim, self.head_dim) if self.trailing else slice(0, self.rotary_dim)

    @property
    def passing(self) -> slice:
        """The channels of a head that pass unchanged."""
        return slice(0, self.head_dim - self.rotary_dim) if self.trailing else slice(self.rotary_dim, self.head_dim)

    @cached_property
    def plain(self) -> bool:
        """Whether it is two halves of the whole head, read and written."""
        return not (self.interleaved or self.permuted) and self.blocks == 1 and self.rotary_dim == self.head_dim

    def turned(self, x: Tensor) -> Tensor:
        """The channels of ``x`` that rotate, as a view; ``x`` itself if it has no others."""
        return x if x.shape[-1] == self.rotary_dim else x[..., self.turning]

    def views(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Views of the first and second channels of all pairs: ``[..., P]``, or ``[..., blocks, P / blocks]``."""
        x = self.turned(x)
        if self.interleaved:
            return x[..., 0::2], x[..., 1::2]
        if self.blocks > 1:
            a, b = x.view(*x.shape[:-1], self.blocks, 2, self.rotary_dim // self.blocks // 2).unbind(-2)
            return a, b
        a, b = x.chunk(2, dim=-1)
        return a, b

    def per_block(self, table: Tensor) -> Tensor:
        """``[..., P]`` in the shape that `views` gives, as a view."""
        return table.view(*table.shape[:-1], self.blocks, self.pairs // self.blocks) if self.blocks > 1 else table

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """First and second channel of every pair as they are read: ``[..., head_dim]`` -> two ``[..., P]``.

        Views, unless ``blocks`` > 1. Takes the ``rotary_dim`` channels that rotate alone, too.

        >>> import torch
        >>> Layout(head_dim=8, blocks=2).split(torch.arange(8))
        (tensor([0, 1, 4, 5]), tensor([2, 3, 6, 7]))
        """
        a, b = self.views(x)
        return (_merged(a), _merged(b)) if self.blocks > 1 else (a, b)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """The channels that rotate, from both members of all pairs: two ``[..., P]`` -> a new ``[..., rotary_dim]``.

        >>> import torch
        >>> Layout(head_dim=4).join(torch.tensor([0, 1]), torch.tensor([2, 3])).tolist()
        [0, 1, 2, 3]
        """
        import torch

        if self.interleaved:
            return _merged(torch.stack((a, b), dim=-1))
        if self.blocks > 1:
            return _merged(torch.cat((self.per_block(a), self.per_block(b)), dim=-1))
        return torch.cat((a, b), dim=-1)

    def within(self, x: Tensor, rotated: Tensor) -> Tensor:
        """The head ``x`` with ``rotated`` in place of its channels that rotate; a new tensor unless all of them do.

        >>> import torch
        >>> layout = Layout(head_dim=3, rotary_dim=2, trailing=True)
        >>> layout.within(torch.tensor([7, 8, 9]), layout.join(torch.tensor([1]), torch.tensor([2]))).tolist()
        [7, 1, 2]
        """
        import torch

        if self.rotary_dim == self.head_dim:
            return rotated
        rest = x[..., self.passing]
        return torch.cat((rest, rotated) if self.trailing else (rotated, rest), dim=-1)

    def written(self) -> Layout:
        """The layout of the result: this one, unless ``permuted``."""
        return dataclasses.replace(self, interleaved=not self.interleaved, permuted=False) if self.permuted else self

    def read(self) -> Layout:
        """The layout in which pairs are read: this one, with ``permuted`` off."""
        return dataclasses.replace(self, permuted=False) if self.permuted else self

    def transposed(self) -> Layout:
        """The layout of the adjoint and of the inverse, which read what this writes and write what it reads."""
        return dataclasses.replace(self, interleaved=not self.interleaved) if self.permuted else self

    def permutation(self, target: Layout) -> list[int]:
        """Index ``p`` with ``x_target = x[..., p]``: the same pairs where ``target`` reads them, the rest in order.

        ``target.permutation(source)`` is its inverse. To convert weights, index the output rows of every head of the q
        and k projections (and their biases and per-channel q/k norms) with it; v and o stay as they are. Weights follow
        what is read: for results of permuted layouts, ask their `written`. Raises ``ValueError`` for other widths.

        >>> Layout(head_dim=6, interleaved=True).permutation(Layout(head_dim=6))
        [0, 2, 4, 1, 3, 5]
        >>> Layout(head_dim=6).permutation(Layout(head_dim=6, interleaved=True))
        [0, 3, 1, 4, 2, 5]
        """
        if (self.head_dim, self.rotary_dim) != (target.head_dim, target.rotary_dim):
            raise ValueError(
                "target must have the same head_dim and rotary_dim (channels are only reordered), "
                f"got {(self.head_dim, self.rotary_dim)} and {(target.head_dim, target.rotary_dim)}"
            )
        moved = dict(zip(target.channels(), self.channels(), strict=True))
        return [moved[channel] for channel in range(self.head_dim)]

    def channels(self) -> list[int]:
        """All channels of a head: the first ones of all pairs as they are read, the second ones, those that pass.

        >>> Layout(head_dim=5, rotary_dim=4, interleaved=True).channels()
        [0, 2, 1, 3, 4]
        """
        turning, passing = (range(self.head_dim)[part] for part in (self.turning, self.passing))
        if self.interleaved:
            return [*turning[0::2], *turning[1::2], *passing]
        width = self.rotary_dim // self.blocks
        blocks = [turning[start : start + width] for start in range(0, self.rotary_dim, width)]
        first = [channel for block in blocks for channel in block[: width // 2]]
        second = [channel for block in blocks for channel in block[width // 2 :]]
        return [*first, *second, *passing]

    def describe(self) -> str:
        """How the pairs lie, in words.

        >>> Layout(head_dim=8, blocks=2).describe()
        'halves in each of 2 blocks'
        """
        halves = "halves" if self.blocks == 1 else f"halves in each of {self.blocks} blocks"
        read, other = ("interleaved", halves) if self.interleaved else (halves, "interleaved")
        return f"{read}, written as {other}" if self.permuted else read


def _merged(x: Tensor) -> Tensor:
    """The last two axes as one. Batched gradients have a rule for `reshape` and `view`, and none for `flatten`."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])
