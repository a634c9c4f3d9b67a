import torch
from torch import Tensor, nn

from .head import SpanHead
from .scores import Factors


class GlobalPointer(SpanHead):
    """A query and a key of each type for every token: ``s(i, j) = (R_i q_i) . (R_j k_j) / sqrt(head_dim)``.

    ``dense`` maps ``hidden_size`` to ``num_types`` blocks of ``[q | k]``, ``2 head_dim`` wide each, the order of all
    published implementations (`load_published`). A cell (start i, end j) above 0 is an entity of that type, so nested
    and overlapping entities come out in one pass (`decode`). R turns q and k by their positions, so a score knows
    ``j - i``, the length of the span; without it the head can only say "a start here" and "an end there".

    Arguments: see `SpanHead`. Source: Su et al. 2022, "Global Pointer", arXiv:2208.03054; the factor
    ``1 / sqrt(head_dim)`` is that of the published code.

    >>> import torch
    >>> head = GlobalPointer(hidden_size=8, num_types=2, head_dim=4)
    >>> scores = head(torch.zeros(1, 3, 8), mask=torch.tensor([[1, 1, 0]]))
    >>> scores.shape, scores.isfinite()[0, 0].int().tolist()
    (torch.Size([1, 2, 3, 3]), [[1, 1, 0], [0, 1, 0], [0, 0, 0]])
    >>> head.loss(torch.zeros(1, 3, 8), torch.tensor([[0, 1, 0, 2]])).ndim  # one entity of type 1, tokens 0 to 2
    0
    """

    def make_layers(self) -> None:
        self.dense = nn.Linear(self.hidden_size, 2 * self.num_types * self.head_dim)

    def project(self, hidden: Tensor, positions: Tensor | None) -> Factors:
        q, k = torch.unflatten(self.dense(hidden), -1, (self.num_types, 2, self.head_dim)).unbind(-2)
        return Factors(*self.rotate(q, k, positions))
