import torch
from torch import Tensor, nn

from ..rotary.apply.calls import apply_rotary
from ..rotary.axes import mixed_frequencies
from ..support.checks import number, whole
from .by_coordinates import ByCoordinates, own_rotation


class RoPEMixed(ByCoordinates):
    """Two axes, with learned frequencies: pair c of head h turns by ``f_xhc x + f_yhc y``.

    ``frequencies`` is ``[2, num_heads, head_dim / 2]``, one set for each layer in the paper; pairs are interleaved.
    Fixed directions are the axes `phasor.axes.Mixed` of a `RotarySpec`.

    Source: Heo et al. 2024, arXiv:2403.13298, section 3.3; ``rope_self_attn.py`` of naver-ai/rope-vit.

    >>> encoding = RoPEMixed(num_heads=1, head_dim=4)
    >>> q, cls = torch.ones(1, 1, 1, 4), torch.zeros(2, 1)
    >>> torch.equal(encoding(q, q, cls)[0], q), encoding.frequencies.shape  # at the origin nothing turns
    (True, torch.Size([2, 1, 2]))
    """

    axes = 2

    def __init__(self, num_heads: int, head_dim: int, *, base: float = 10.0) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim)
        number("base", base, above=1)
        self.num_heads, self.head_dim, self.base = num_heads, head_dim, base
        self.frequencies = nn.Parameter(torch.empty(2, num_heads, head_dim // 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A random direction for each head and one at a right angle: see `phasor.axes.mixed_frequencies`."""
        start = mixed_frequencies(self.head_dim, self.frequencies.shape[1], base=self.base)
        with torch.no_grad():
            self.frequencies.copy_(start.transpose(0, 1))

    def turn(self, x: Tensor, coordinates: Tensor) -> Tensor:
        return apply_rotary(x, own_rotation(coordinates, self.frequencies.transpose(0, 1), x.dtype))
