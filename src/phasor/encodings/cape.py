"""CAPE: sinusoids of positions that training shifts and stretches at random."""

import math

import torch
from torch import Tensor

from ..support.checks import number, whole
from .base import Encoding, wide


class CAPE(Encoding):
    """Sinusoids added to the embeddings, of positions that are moved at random in training and as given otherwise.

    ::

        p' = (p + shift + local_p) stretch,    E_2i = sin(p' f_i),  E_2i+1 = cos(p' f_i),  f_i = 10000 ** (-2 i / dim)

    For each row of the batch one shift is drawn, uniform up to ``global_shift`` on both sides, and one stretch, uniform
    on the logarithm up to ``stretch``; for each token up to ``local_shift`` (half of their spacing keeps the order).
    Positions are integers or real: seconds, or tokens less their mean, as speech models have them (which no decoding
    can know). ``frequency_scale`` multiplies the frequencies. The paper multiplies the embeddings by ``sqrt(dim)``
    first: the caller's part.

    Source: Likhomanenko et al. 2021, arXiv:2106.03143, section 3; github.com/gcambara/cape.

    >>> encoding = CAPE(dim=4, global_shift=5.0).eval()
    >>> encoding.embed(torch.zeros(1, 1, 4), torch.tensor([0])).tolist()
    [[[0.0, 1.0, 0.0, 1.0]]]
    """

    axes = 1

    def __init__(
        self, dim: int, *, global_shift: float = 0.0, local_shift: float = 0.0, stretch: float = 1.0,
        frequency_scale: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__()
        whole("dim", dim, at_least=2)
        if dim % 2:
            raise ValueError(f"dim must be even (sines and cosines are pairs), got {dim}")
        number("global_shift", global_shift, at_least=0)
        number("local_shift", local_shift, at_least=0)
        number("stretch", stretch, at_least=1)
        number("frequency_scale", frequency_scale, above=0)
        self.dim, self.frequency_scale = dim, frequency_scale
        self.global_shift, self.local_shift, self.stretch = global_shift, local_shift, stretch

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if positions.dtype in (torch.bool, torch.float16, torch.bfloat16) or positions.is_complex():
            raise ValueError(f"positions must be integers, float32 or float64, got {positions.dtype}")
        at = positions.double()
        if self.training:
            rows = at if at.ndim - (self.axes > 1) == 2 else at.unsqueeze(-2)
            at = self.moved(rows.expand(*rows.shape[:-2], *x.shape[:2]))
        return (x + self.vectors(at).to(wide(x.dtype))).to(x.dtype)

    def moved(self, positions: Tensor) -> Tensor:
        """Positions ``[(axes,) B, S]`` as training sees them, drawn anew by each call from PyTorch's generator."""
        row = positions[..., :1]
        shift, local = _between(row, self.global_shift), _between(positions, self.local_shift)
        stretch = _between(row[:1] if self.axes > 1 else row, math.log(self.stretch)).exp()
        return (positions + shift + local) * stretch

    def vectors(self, positions: Tensor) -> Tensor:
        """``E`` at float64 ``[..., S]`` -> ``[..., S, dim]``."""
        i = torch.arange(0, self.dim, 2, dtype=torch.float64, device=positions.device)
        angles = positions.unsqueeze(-1) * (self.frequency_scale * 10_000.0 ** (-i / self.dim))
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class CAPE2d(CAPE):
    """CAPE for images: ``[cos(pi w_c . p) | sin(pi w_c . p)]``, p the coordinates ``[2, (B,) S]``, from -1 to 1.

    ``w_c = 10 ** (c / (dim / 2 - 1)) (cos c, sin c)``: waves in all directions. One stretch for both axes.

    Source: Likhomanenko et al. 2021, arXiv:2106.03143, section 3.2; ``CAPE2d`` of github.com/gcambara/cape.

    >>> encoding = CAPE2d(dim=4).eval()
    >>> encoding.embed(torch.zeros(1, 1, 4), torch.zeros(2, 1)).tolist()
    [[[1.0, 1.0, 0.0, 0.0]]]
    """

    axes = 2

    def vectors(self, positions: Tensor) -> Tensor:
        """At float64 ``[2, ..., S]`` -> ``[..., S, dim]``."""
        c = torch.arange(self.dim // 2, dtype=torch.float64, device=positions.device)
        size = self.frequency_scale * 10.0 ** torch.linspace(0, 1, len(c), dtype=torch.float64, device=c.device)
        x, y = positions.unsqueeze(-1)
        angles = math.pi * (x * size * c.cos() + y * size * c.sin())
        return torch.cat((angles.cos(), angles.sin()), dim=-1)


def _between(like: Tensor, most: float) -> Tensor:
    """Uniform on both sides of zero."""
    return torch.empty_like(like).uniform_(-most, most)
