"""Which key a query may see, as a rule about positions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """Which key each query may see. Token fields are rows, ``[B, S]`` or ``[1, S]`` if all sequences share them.

    >>> at = torch.tensor([[0, 1]])
    >>> Mask(causal=True, q_positions=at, k_positions=at).dense()[0, 0].tolist()
    [[True, False], [True, True]]
    """

    causal: bool
    q_positions: Tensor
    k_positions: Tensor
    key_padding: Tensor | None = None
    q_documents: Tensor | None = None
    k_documents: Tensor | None = None

    def dense(self) -> Tensor | None:
        """True where visible, ``[B or 1, 1, Q, K]``; None if everything is."""
        rules = []
        if self.causal:
            rules.append(self.k_positions[:, None, None, :] <= self.q_positions[:, None, :, None])
        if self.key_padding is not None:
            rules.append(~self.key_padding[:, None, None, :])
        if self.q_documents is not None and self.k_documents is not None:
            rules.append(self.q_documents[:, None, :, None] == self.k_documents[:, None, None, :])
        visible = None
        for rule in rules:
            visible = rule if visible is None else visible & rule
        return visible

    def is_lower_triangle(self) -> bool:
        """True if `dense` is SDPA's ``is_causal``, which is faster. Reads values, so it runs on a CPU only."""
        if torch.compiler.is_compiling() or not self.causal or self.q_positions.device.type != "cpu":
            return False
        plain = self.key_padding is None and self.q_documents is None
        rising = bool((self.q_positions.diff() > 0).all())
        return plain and rising and torch.equal(self.q_positions, self.k_positions)

    def mask_mod(self, batch: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """`dense` as FlexAttention asks for it."""
        rows = self.expand(batch)

        def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            seen = rows.k_positions[b, j] <= rows.q_positions[b, i] if rows.causal else j >= 0
            if rows.key_padding is not None:
                seen = seen & ~rows.key_padding[b, j]
            if rows.q_documents is not None and rows.k_documents is not None:
                seen = seen & (rows.q_documents[b, i] == rows.k_documents[b, j])
            return seen

        return visible

    def expand(self, batch: int) -> "Mask":
        """The same mask with one row for every sequence of the batch."""
        names = ("q_positions", "k_positions", "key_padding", "q_documents", "k_documents")
        rows = {name: getattr(self, name) for name in names}
        return replace(self, **{name: row.expand(batch, -1) for name, row in rows.items() if row is not None})
