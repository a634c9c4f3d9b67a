"""Rotary written out by hand, without phasor: a right implementation, of which the tests break one line at a time."""

import math

import torch
from torch import Tensor

YARN = {"factor": 4.0, "original": 4096, "fast": 32.0, "slow": 1.0}


def ladder(base: float, dim: int) -> Tensor:
    return torch.tensor([base ** (-2 * i / dim) for i in range(dim // 2)], dtype=torch.float64)


def yarn(base: float, dim: int, truncate: bool = True) -> Tensor:
    """Frequencies of YaRN as the authors' code has them, with the numbers of `YARN`."""
    f = ladder(base, dim)

    def pair_with(turns: float) -> float:
        return dim * math.log(YARN["original"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_with(YARN["fast"]), pair_with(YARN["slow"])
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - max(low, 0)) / (min(high, dim - 1) - max(low, 0))).clamp(
        0, 1
    )
    return f * (1 - ramp) + f / YARN["factor"] * ramp


def llama3(base: float, dim: int) -> Tensor:
    """Llama 3.1: factor 8, low 1, high 4, trained length 8192; Meta's code."""
    return llama3_of(ladder(base, dim))


def llama3_of(frequencies: Tensor) -> Tensor:
    out = []
    for f in frequencies.tolist():
        wave = 2 * math.pi / f
        smooth = (8192 / wave - 1.0) / (4.0 - 1.0)
        out.append(f if wave < 8192 / 4.0 else f / 8 if wave > 8192 / 1.0 else (1 - smooth) * f / 8 + smooth * f)
    return torch.tensor(out, dtype=torch.float64)


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
