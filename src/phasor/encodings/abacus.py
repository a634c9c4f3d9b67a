"""Abacus: the place of a digit in its number."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..support.checks import whole
from .learned import Learned


def abacus_places(ids: Tensor, digits: Sequence[int]) -> Tensor:
    """1, 2, 3, ... along each run of digits, 0 at all other tokens: int64 ``[..., S]``.

    Numbers are written with the lowest digit first, one token for a digit, so that digits of one worth share a place.
    Tokens that are decoded: those of all ids so far, the last ones.

    Source: McLeish et al. 2024, arXiv:2405.17399, section 3.1.

    >>> abacus_places(torch.tensor([7, 8, 10, 9, 1, 2]), digits=range(10)).tolist()
    [1, 2, 0, 1, 2, 3]
    """
    inside = torch.isin(ids, torch.tensor(list(digits), dtype=ids.dtype, device=ids.device))
    count = inside.cumsum(-1)
    before = torch.where(inside, 0, count).cummax(-1).values
    return torch.where(inside, count - before, 0)


class Abacus(Learned):
    """A learned vector for the place of a digit in its number, added to the embeddings; row 0 for all other tokens.

    ``positions`` are the `abacus_places` of the tokens; the order of the tokens is left to another encoding. In
    training one number from 0 to ``max_shift`` is drawn for the batch and added to the places of digits, so that places
    of longer numbers are trained, too. A place behind the table raises ``ValueError``.

    Source: McLeish et al. 2024, arXiv:2405.17399, section 3.1; github.com/mcleish7/arithmetic, ``abacus.py``.

    >>> encoding = Abacus(dim=2, max_shift=100).eval()
    >>> places = abacus_places(torch.tensor([[10, 7, 8]]), digits=range(10))
    >>> torch.equal(encoding.embed(torch.zeros(1, 3, 2), places)[0], encoding.table.weight[:3])
    True
    """

    def __init__(self, dim: int, *, num_places: int = 1024, max_shift: int = 0) -> None:
        whole("max_shift", max_shift, at_least=0)
        super().__init__(num_places, dim)
        self.max_shift = max_shift

    def reset_parameters(self) -> None:
        """Normal, as the authors' code."""
        nn.init.normal_(self.table.weight)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.training and self.max_shift:
            shift = torch.randint(self.max_shift + 1, (), device=positions.device)
            positions = torch.where(positions > 0, positions + shift, positions)
        return super().embed(x, positions)
