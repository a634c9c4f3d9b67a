"""``theta_i = base ** (-2 i / dim)``: the angular frequency of pair i in radians per position. Written only here.

Exact decimals, from which phases are formed; and the ways in which published models form it, bit for bit.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from .fixed_point import exact

if TYPE_CHECKING:
    from torch import Tensor


def inverse_frequencies(base: Decimal, dim: int) -> list[Decimal]:
    """``[dim / 2]`` exact values, falling from 1 towards ``1 / base`` (RoFormer, arXiv:2104.09864, section 3.2.2).

    An odd ``dim`` has ``(dim + 1) / 2`` of them, here and below: the exponents ``0, 2, 4, …`` below ``dim``.

    >>> [str(f.normalize()) for f in inverse_frequencies(Decimal(10_000), 8)]
    ['1', '0.1', '0.01', '0.001']
    """
    return list(_ladder(base, dim))


@lru_cache(maxsize=64)
def _ladder(base: Decimal, dim: int) -> tuple[Decimal, ...]:
    with exact():
        return tuple(base ** (Decimal(-2 * i) / dim) for i in range((dim + 1) // 2))


def powers_float32(base: float | Tensor, dim: int, count: int | None = None) -> Tensor:
    """The first ``count`` (default ``dim / 2``) values of ``base ** (2i / dim)``, float32, as transformers forms them.

    >>> powers_float32(10_000.0, 4).tolist()
    [1.0, 100.0]
    """
    import torch

    count = (dim + 1) // 2 if count is None else count
    return base ** (torch.arange(0, 2 * count, 2, dtype=torch.int64, device="cpu").to(torch.float32) / dim)


def inverse_frequencies_float32(base: float | Tensor, dim: int) -> Tensor:
    """``[dim / 2]`` float32, in the order of operations of transformers' ``compute_default_rope_parameters``.

    >>> inverse_frequencies_float32(10_000.0, 4).tolist()
    [1.0, 0.009999999776482582]
    """
    return 1.0 / powers_float32(base, dim)


def own_ladder(angles: str, base: float, dim: int) -> Tensor:
    """``[dim / 2]`` as the code of models forms it whose ``angles`` are formed so (`RotarySpec`).

    >>> own_ladder("float32_exp", 10_000.0, 4).tolist(), own_ladder("float64", 10_000.0, 4).tolist()
    ([1.0, 0.009999999776482582], [1.0, 0.01])
    """
    import torch

    if angles == "float32":
        return inverse_frequencies_float32(base, dim)
    even = torch.arange(0, dim, 2, dtype=torch.int64, device="cpu")
    if angles == "float32_exp":
        return torch.exp(-math.log(base) * even.to(torch.float32) / dim)
    return 1.0 / base ** (even.to(torch.float64) / dim)
