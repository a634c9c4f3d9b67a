from collections.abc import Callable

import torch
from torch import Tensor

from ..support.tracing import readable
from .base import Encoding, ScoreMod, check_heads, distances, wide

Term = Callable[[Tensor, Tensor], Tensor]


class ByDistance(Encoding):
    """Base of encodings whose bias is one formula of the head h and of how far the key stands ahead, ``r = n - m``.

    `term` gives that formula. Where a call has fewer distances than pairs, it is computed once for each distance and
    looked up for each pair.
    """

    num_heads: int
    farthest: int | None = None  # beyond this distance, on either side, the bias stays as it is there
    way_out = ""  # for who has other heads

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        """The formula of ``(h, r)``, int64 tensors that broadcast, computed in ``dtype``."""
        raise NotImplementedError

    def by_distance(self, r: Tensor, latest: int, dtype: torch.dtype) -> Tensor:
        return self.term(dtype, r.device)(torch.arange(self.num_heads, device=r.device).unsqueeze(-1), r)

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q, self.way_out)
        r, dtype = -distances(q_positions, k_positions), wide(q.dtype)
        ends = (
            self._ends(q_positions, k_positions) if self.farthest is not None or r.is_cpu else None
        )  # a GPU would wait
        if ends is None:
            heads = torch.arange(self.num_heads, device=r.device).view(-1, 1, 1)
            return self.term(dtype, r.device)(heads, r.unsqueeze(-3))
        by_head = self._row(*ends, r.device, dtype).index_select(1, (r.clamp(*ends) - ends[0]).flatten())
        return torch.unflatten(by_head, 1, r.shape).movedim(0, -3)

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        dtype = wide(next(self.parameters(), torch.empty(0)).dtype)
        ends = self._ends(q_positions, k_positions)
        if ends is None:
            term = self.term(dtype, q_positions.device)
            return lambda score, b, h, i, j: score + term(h, k_positions[b, j] - q_positions[b, i])
        row = self._row(*ends, q_positions.device, dtype)

        def look_up(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + row[h, (k_positions[b, j] - q_positions[b, i]).clamp(*ends) - ends[0]]

        return look_up

    def _row(self, low: int, high: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The bias ``[H, high - low + 1]`` of each r between."""
        return self.by_distance(torch.arange(low, high + 1, device=device), 0, dtype)

    def _ends(self, q_positions: Tensor, k_positions: Tensor) -> tuple[int, int] | None:
        """The least and the greatest r to look up; None where those between are no fewer than the pairs, or unknown."""
        if self.farthest is not None:
            return -self.farthest, self.farthest
        pairs = q_positions.shape[-1] * k_positions.shape[-1]
        if not pairs or not readable(q_positions) or not readable(k_positions):
            return None
        (first_q, last_q), (first_k, last_k) = (map(int, at.aminmax()) for at in (q_positions, k_positions))
        return (first_k - last_q, last_k - first_q) if last_k - first_k + last_q - first_q < pairs else None
