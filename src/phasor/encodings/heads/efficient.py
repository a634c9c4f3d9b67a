import torch
from torch import Tensor, nn

from .head import SpanHead
from .scores import Factors


class EfficientGlobalPointer(SpanHead):
    """One query and key for all types, and what each type thinks of a start and of an end.

    ``[q | k] = dense(h)``, ``[start_a, end_a] = ends([q | k]) / 2`` for each type a, from q and k before rotation, and

        s_a(i, j) = (R_i q_i) . (R_j k_j) / sqrt(head_dim) + start_a(i) + end_a(j).

    A further type costs ``4 head_dim + 2`` weights instead of ``2 head_dim (hidden_size + 1)``. Units of ``ends`` are
    (start, end) for type 0, then for type 1 …; `load_published` knows the published orders.

    Arguments: see `SpanHead`. Source: Su et al. 2022, arXiv:2208.03054, and kexue.fm/archives/8877; the
    biases and the factors 1/2 and ``1 / sqrt(head_dim)`` are those of the published code.

    >>> head = EfficientGlobalPointer(hidden_size=8, num_types=2, head_dim=4)
    >>> head(torch.zeros(1, 3, 8)).shape, sum(p.numel() for p in head.parameters())
    (torch.Size([1, 2, 3, 3]), 108)
    """

    def make_layers(self) -> None:
        self.dense = nn.Linear(self.hidden_size, 2 * self.head_dim)
        self.ends = nn.Linear(2 * self.head_dim, 2 * self.num_types)

    def project(self, hidden: Tensor, positions: Tensor | None) -> Factors:
        qk = self.dense(hidden)
        q, k = (x.unsqueeze(2) for x in qk.chunk(2, dim=-1))
        ends = self.ends(qk)
        halved = 0.5 * ends.to(torch.promote_types(ends.dtype, torch.float32))
        start, end = torch.unflatten(halved.transpose(1, 2), 1, (self.num_types, 2)).unbind(2)
        return Factors(*self.rotate(q, k, positions), start, end)
