from torch import Tensor, nn

from ..support.checks import whole
from .base import Encoding, distances, wide


class Shaw(Encoding):
    """Learned vectors per clipped distance, added to keys and to values.

    ::

        logit_mn = scale q_m . (k_n + aK_c),    out_m = sum_n weight_mn (v_n + aV_c),    c = clip(n - m, -K, K)

    ``max_distance`` is K; ``max_future`` bounds the side of keys after the query on its own (default K). The tables
    ``key_table`` and ``value_table`` are ``[past + future + 1, head_dim]``, shared by all heads, index 0 the farthest
    past; ``with_values=False`` leaves out aV, as "relative_key" of wav2vec2-BERT and SeamlessM4T-v2 does.

    Neither ``[Q, K, head_dim]`` tensor is formed: q meets every row of the table once, and the weights are summed per
    distance first. With aV the softmax weights are needed, so only ``kernel="reference"`` can compute it.

    Source: Shaw et al. 2018, arXiv:1803.02155, eq. 3-5.

    >>> encoding = Shaw(head_dim=4, max_distance=2)
    >>> encoding.key_table.weight.shape
    torch.Size([5, 4])
    """

    def __init__(
        self, head_dim: int, max_distance: int, *, max_future: int | None = None, with_values: bool = True
    ) -> None:
        super().__init__()
        max_future = max_distance if max_future is None else max_future
        whole("head_dim", head_dim)
        whole("max_distance", max_distance, at_least=0)
        whole("max_future", max_future, at_least=0)
        self.max_distance, self.max_future = max_distance, max_future
        self.key_table = nn.Embedding(max_distance + max_future + 1, head_dim)
        self.value_table = nn.Embedding(max_distance + max_future + 1, head_dim) if with_values else None
        self.needs_weights = with_values
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's uniform, as the authors' code."""
        for table in (self.key_table, self.value_table):
            if table is not None:
                nn.init.xavier_uniform_(table.weight)

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor:
        if q.shape[-1] != self.key_table.embedding_dim:
            raise ValueError(f"q must have the head_dim {self.key_table.embedding_dim} of Shaw, got {q.shape[-1]}")
        dtype = wide(q.dtype)
        by_distance = q.to(dtype) @ self.key_table.weight.to(dtype).T * scale  # [B, H, Q, distances]
        index = self._index(q_positions, k_positions)
        return by_distance.gather(-1, index.expand(*q.shape[:-1], k.shape[-2]))

    def values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        if self.value_table is None:
            return None
        index = self._index(q_positions, k_positions).expand_as(weights)
        by_distance = weights.new_zeros(*weights.shape[:-1], self.value_table.num_embeddings)
        return by_distance.scatter_add(-1, index, weights) @ self.value_table.weight.to(weights.dtype)

    def _index(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        offset = (-distances(q_positions, k_positions)).clamp(-self.max_distance, self.max_future) + self.max_distance
        return offset.unsqueeze(-3)
