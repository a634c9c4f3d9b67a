import torch
from torch import Tensor, nn

from ..support.checks import whole
from .base import Encoding


class Learned(Encoding):
    """A learned vector per position, added to the token embeddings: ``x_t + E[t]`` (BERT, GPT-2).

    ``table.weight`` is ``[num_positions, dim]``. There is no vector for a position outside the table, and none is made
    up: such a position raises ``ValueError``. (Under ``torch.compile`` the check is left to the embedding itself.)

    Source: Devlin et al. 2018, arXiv:1810.04805; Gehring et al. 2017, arXiv:1705.03122, section 3.1.

    >>> encoding = Learned(num_positions=4, dim=2)
    >>> encoding.embed(torch.zeros(1, 3, 2), torch.tensor([0, 1, 3])).shape
    torch.Size([1, 3, 2])
    """

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        whole("num_positions", num_positions)
        whole("dim", dim)
        self.table = nn.Embedding(num_positions, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation 0.02, as BERT and GPT-2."""
        nn.init.normal_(self.table.weight, std=0.02)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_inside(positions, self.table.num_embeddings)
        return (x + self.table(positions)).to(x.dtype)


def check_inside(
    positions: Tensor,
    size: int,
    rule: str = "lie in the learned table of {} positions",
    out: str = "a learned encoding does not reach further: cut the input or train a larger table",
) -> None:
    """Raise ``ValueError`` unless a table of ``size`` positions has them all."""
    if torch.compiler.is_compiling() or not positions.numel():
        return
    low, high = (int(bound) for bound in torch.aminmax(positions))
    if low < 0 or high >= size:
        raise ValueError(f"positions must {rule.format(size)} (0 to {size - 1}), got {low} to {high}; {out}")
