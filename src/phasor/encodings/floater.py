from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..support.checks import number, whole
from .base import Encoding, wide


class FLOATER(Encoding):
    """Position vectors that flow: the solution of a learned differential equation, read once for each position.

    ::

        p(t) = p(0) + integral_0^t h(s, p(s)) ds,    h(s, p) = W2 [relu(W1 [p; s] + b1); s] + b2,    t = dt position

    The vector is added to the embeddings, as in the paper. (The authors' code adds three, projected, to q, k and v of
    each layer.) The integral is Runge and Kutta's fourth order in its 3/8 form, ``steps`` for each position, as the
    solver of the authors has it; the classic form differs by 2e-4 at ``dt=0.1``.

    Every call integrates from 0 to the largest position, four small products for each step; gradients pass. To decode,
    or to train as the authors do (a new table every 400 updates), put `table` into `Learned` and use that.

    Source: Liu et al. 2020, arXiv:2003.09229, section 3; github.com/xuanqing94/FLOATER.

    >>> encoding = FLOATER(dim=2, dt=0.5)
    >>> with torch.no_grad():
    ...     for p in encoding.parameters():
    ...         _ = p.zero_()
    ...     _ = encoding.last.bias.fill_(1.0)  # a flow of 1 everywhere
    >>> encoding.table(3).tolist()
    [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]
    """

    def __init__(self, dim: int, *, dt: float = 0.01, steps: int = 5) -> None:
        super().__init__()
        whole("dim", dim)
        number("dt", dt, above=0)
        whole("steps", steps)
        self.dim, self.dt, self.steps = dim, dt, steps
        self.start = nn.Parameter(torch.empty(dim))
        self.first, self.last = nn.Linear(dim + 1, dim), nn.Linear(dim + 1, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's, uniform for p(0) and normal for the weights, biases zero, as the authors' code."""
        nn.init.xavier_uniform_(self.start.unsqueeze(0))
        for layer in (self.first, self.last):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if positions.numel() and int(positions.min()) < 0:
            raise ValueError(f"positions must be at least 0, where the flow starts, got {int(positions.min())}")
        length = int(positions.max()) + 1 if positions.numel() else 1
        return (x + self.table(length).to(wide(x.dtype))[positions]).to(x.dtype)

    def table(self, length: int) -> Tensor:
        """The vectors of positions 0 to ``length - 1``, ``[length, dim]``, integrated in float64."""
        whole("length", length)
        flow, p, s = self._flow(), self.start.double(), self.dt / self.steps
        rows = [p]
        for step in range((length - 1) * self.steps):
            t = step * s
            k1 = flow(t, p)
            k2 = flow(t + s / 3, p + s * k1 / 3)
            k3 = flow(t + 2 * s / 3, p + s * (k2 - k1 / 3))
            k4 = flow(t + s, p + s * (k1 - k2 + k3))
            p = p + s * (k1 + 3 * k2 + 3 * k3 + k4) / 8
            if (step + 1) % self.steps == 0:
                rows.append(p)
        return torch.stack(rows).to(wide(self.start.dtype))

    def _flow(self) -> Callable[[float, Tensor], Tensor]:
        """``h``."""
        w1, b1, w2, b2 = (p.double() for layer in (self.first, self.last) for p in (layer.weight, layer.bias))

        def h(t: float, p: Tensor) -> Tensor:
            inner = w1[:, :-1] @ p + w1[:, -1] * t + b1
            return w2[:, :-1] @ inner.relu() + w2[:, -1] * t + b2

        return h
