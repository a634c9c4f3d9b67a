from collections.abc import Callable

import torch
from torch import Tensor

from .base import Encoding, ScoreMod, check_heads, wide

Term = Callable[[Tensor, Tensor, Tensor], Tensor]


class Additive(Encoding):
    """Base of encodings whose bias is one learned formula of the head h and the positions m of query and n of key.

    `term` gives that formula. Of whole rows it makes `bias`, of single numbers `score_mod`, so both are one.
    """

    num_heads: int

    def term(self, dtype: torch.dtype) -> Term:
        """The formula of ``(h, m, n)``, int64 tensors that broadcast, computed in ``dtype``."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        heads = torch.arange(self.num_heads, device=q.device).view(-1, 1, 1)
        m, n = q_positions.unsqueeze(-1).unsqueeze(-3), k_positions.unsqueeze(-2).unsqueeze(-3)
        return self.term(wide(q.dtype))(heads, m, n)

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        term = self.term(wide(next(self.parameters()).dtype))

        def add_term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + term(h, q_positions[b, i], k_positions[b, j])

        return add_term


class Tabled(Encoding):
    """Base of encodings whose bias depends on positions alone, and is a table rather than a formula of two numbers.

    FlexAttention reads it from that tensor, ``[B, H, Q, K]``.
    """

    num_heads: int

    def table(self, q_positions: Tensor, k_positions: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias, ``[(B,) H, Q, K]``."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        return self.table(q_positions, k_positions, wide(q.dtype))

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        table = self.table(q_positions, k_positions, torch.float32)

        def add_entry(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + table[b, h, i, j]

        return add_entry
