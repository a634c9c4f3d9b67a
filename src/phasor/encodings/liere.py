import math

import torch
from torch import Tensor, nn

from ..support.checks import whole
from .base import wide
from .by_coordinates import ByCoordinates


class LieRE(ByCoordinates):
    """Rotations of more than two channels at once, of which each axis has a learned generator.

    ::

        R(p) = exp(sum_a p_a (U_a - U_a^T)),    U_a the strict upper triangle of generators[:, a]

    ``generators`` is ``[1 or num_heads, axes, head_dim / block, block, block]``; all heads share one set unless
    ``num_heads`` is given. The authors' coordinates run from 0 to 1 along each side of an image, both included.

    Generators of two axes do not commute, so with more than one axis scores depend on more than the offset of a key
    from its query: an image that is shifted gets other scores. The exponential is formed in float64, whose squarings
    would cost two digits of float32.

    Source: Ostmeier et al. 2024, arXiv:2406.10322, section 4; StanfordMIMI/LieRE.

    >>> encoding = LieRE(head_dim=2)  # blocks of two: a plain rotation, by minus the angle
    >>> with torch.no_grad():
    ...     _ = encoding.generators.fill_(torch.pi / 2)
    >>> q = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    >>> [round(x, 6) + 0.0 for x in encoding(q, q, torch.tensor([1.0]))[0].flatten().tolist()]
    [0.0, -1.0]
    """

    def __init__(self, head_dim: int, *, axes: int = 1, block: int | None = None, num_heads: int | None = None) -> None:
        super().__init__()
        block = head_dim if block is None else block
        whole("head_dim", head_dim)
        whole("axes", axes)
        whole("block", block, at_least=2)
        if num_heads is not None:
            whole("num_heads", num_heads)
        if head_dim % block:
            raise ValueError(
                f"block must divide head_dim={head_dim} (each block of channels turns by itself), got {block}"
            )
        self.axes, self.block, self.num_heads = axes, block, num_heads
        self.generators = nn.Parameter(torch.empty(num_heads or 1, axes, head_dim // block, block, block))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform up to ``2 pi``, as the authors' code."""
        nn.init.uniform_(self.generators, 0, 2 * math.pi)

    def turn(self, x: Tensor, coordinates: Tensor) -> Tensor:
        blocks = torch.unflatten(x.to(wide(x.dtype)), -1, (-1, self.block)).unsqueeze(-1)
        return (self._matrices(coordinates, blocks.dtype) @ blocks).flatten(-3).to(x.dtype)

    def _matrices(self, coordinates: Tensor, dtype: torch.dtype) -> Tensor:
        """``[(B,) H or 1, S, blocks, block, block]``."""
        upper = self.generators.double().triu(1)
        skew = upper - upper.transpose(-1, -2)
        return torch.linalg.matrix_exp(torch.einsum("a...s,hacij->...hscij", coordinates.double(), skew)).to(dtype)
