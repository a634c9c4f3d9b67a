"""STRING: learned rotations on any number of axes whose scores depend on offsets only, in two forms."""

import torch
from torch import Tensor, nn

from ..rotary.apply.calls import apply_rotary
from ..rotary.frequencies import inverse_frequencies_float32
from ..support.checks import number, whole
from .base import wide
from .by_coordinates import ByCoordinates, own_rotation


class StringCayley(ByCoordinates):
    """Rotary in learned planes: ``R(p) = P RoPE(p) P^T``, with ``P = (I - S)(I + S)^-1`` orthogonal, S antisymmetric.

    ``generators`` ``[num_heads, head_dim, head_dim]`` gives S by its strict lower triangle, and ``frequencies``
    ``[num_heads, axes, head_dim / 2]`` the turns of interleaved pairs. The P on the left cancels in every score and is
    left out: q and k come out as ``RoPE(p) P^T x``.

    The paper names no start. Here S is zero, so planes are pairs of channels, and pair c turns by
    ``base ** (-2 c / head_dim)`` along a random direction.

    Source: Schenck et al. 2025, arXiv:2502.02562, section 3.2.

    >>> encoding = StringCayley(num_heads=1, head_dim=4, axes=3)
    >>> q, origin = torch.randn(1, 1, 1, 4), torch.zeros(3, 1)
    >>> torch.equal(encoding(q, q, origin)[0], q)  # S is still zero
    True
    """

    def __init__(self, num_heads: int, head_dim: int, *, axes: int = 2, base: float = 10_000.0) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim, at_least=2)
        whole("axes", axes)
        number("base", base, above=1)
        if head_dim % 2:
            raise ValueError(f"head_dim must be even (channels turn in pairs), got {head_dim}")
        self.num_heads, self.axes, self.base = num_heads, axes, base
        self.generators = nn.Parameter(torch.empty(num_heads, head_dim, head_dim))
        self.frequencies = nn.Parameter(torch.empty(num_heads, axes, head_dim // 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """S zero, and the frequencies of RoPE along random directions."""
        nn.init.zeros_(self.generators)
        nn.init.normal_(self.frequencies)
        size = inverse_frequencies_float32(self.base, self.generators.shape[-1]).to(self.frequencies.device)
        with torch.no_grad():
            self.frequencies.mul_(size / self.frequencies.norm(dim=-2, keepdim=True))

    def turn(self, x: Tensor, coordinates: Tensor) -> Tensor:
        lower = self.generators.to(wide(x.dtype)).tril(-1)
        skew = lower - lower.transpose(-1, -2)
        one = torch.eye(len(skew[0]), dtype=skew.dtype, device=skew.device)
        p = torch.linalg.solve(one + skew, one - skew)  # the two commute
        in_planes = x.to(p.dtype) @ p  # P^T x, for rows
        return apply_rotary(in_planes, own_rotation(coordinates, self.frequencies, p.dtype)).to(x.dtype)


class StringCirculant(ByCoordinates):
    """``R(p) = exp(sum_a p_a (C_a - C_a^T))``, with C_a circulant: a turn of every frequency across the channels.

    ``coefficients`` ``[num_heads, axes, head_dim]`` are the first rows of C_a. Circulant matrices commute and have the
    Fourier basis, so the exponential multiplies the spectrum of x by unit numbers: two fast transforms, no matrix.

    The paper names no start; here it is normal with deviation ``1 / head_dim``.

    Source: Schenck et al. 2025, arXiv:2502.02562, section 3.2.

    >>> encoding = StringCirculant(num_heads=1, head_dim=8, axes=1)
    >>> x, t = torch.randn(1, 1, 1, 8), torch.tensor([3.0])
    >>> torch.allclose(encoding(x, x, t)[0].norm(), x.norm())  # a rotation
    True
    """

    def __init__(self, num_heads: int, head_dim: int, *, axes: int = 2) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim, at_least=3)  # C - C^T is zero for fewer
        whole("axes", axes)
        self.num_heads, self.axes = num_heads, axes
        self.coefficients = nn.Parameter(torch.empty(num_heads, axes, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation ``1 / head_dim``."""
        nn.init.normal_(self.coefficients, std=1 / self.coefficients.shape[-1])

    def turn(self, x: Tensor, coordinates: Tensor) -> Tensor:
        dtype, width = wide(x.dtype), self.coefficients.shape[-1]
        turns = -2 * torch.fft.rfft(self.coefficients.double()).imag  # of C - C^T, whose eigenvalues are imaginary
        angles = torch.einsum("a...s,haf->...hsf", coordinates.double(), turns)
        if not x.numel():
            return x
        unit = torch.complex(angles.cos().to(dtype), angles.sin().to(dtype))
        return torch.fft.irfft(torch.fft.rfft(x.to(dtype)) * unit, n=width).to(x.dtype)
