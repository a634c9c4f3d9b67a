"""Rotary written out by hand, without phasor: a right implementation, of which the tests break one line at a time."""

import torch
from torch import Tensor

from . import matrix


def ladder(base: float, dim: int) -> Tensor:
    return torch.tensor([base ** (-2 * i / dim) for i in range(dim // 2)], dtype=torch.float64)


def yarn(base: float, dim: int, truncate: bool = True) -> Tensor:
    """Frequencies of YaRN with the numbers of `matrix.YARN`."""
    return matrix.yarn(ladder(base, dim), base, dim, matrix.YARN | {"exact": not truncate})


def llama3(base: float, dim: int) -> Tensor:
    """Llama 3.1: factor 8, low 1, high 4, trained length 8192."""
    return matrix.llama3(ladder(base, dim), base, dim, matrix.LLAMA3)


def turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    n = cos.shape[-1]
    a, b = x[..., :n], x[..., n:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def turn_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, cos.dtype))
    a, b = x[..., 0::2], x[..., 1::2]
    out[..., 0::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    return out


def tables(positions: Tensor, f: Tensor, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    angles = positions.double()[:, None] * f
    return angles.cos() * factor, angles.sin() * factor
