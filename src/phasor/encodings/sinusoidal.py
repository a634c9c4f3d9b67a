from decimal import Decimal
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from ..rotary.fixed_point import steps
from ..rotary.frequencies import inverse_frequencies
from ..rotary.phase import cos_sin, phases
from ..support.checks import number
from ..support.tracing import constant
from .base import Encoding, wide

Columns = Literal["interleaved", "sin_cos", "cos_sin"]


def sinusoids(
    positions: Tensor,
    dim: int,
    *,
    base: float = 10_000.0,
    layout: Columns = "interleaved",
    endpoint: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Sines and cosines of ``t theta_i``, ``theta_i = base ** (-2 i / dim)``: int64 ``[...]`` -> ``[..., dim]``.

    ===============  ========  ==========================================================================
    ``layout``       endpoint  used by
    ===============  ========  ==========================================================================
    ``interleaved``  False     the paper: ``sin_0 cos_0 sin_1 cos_1 ...``
    ``sin_cos``      False     Transformer-XL, XLNet: ``[sin | cos]``
    ``sin_cos``      True      tensor2tensor, fairseq, M2M-100, Whisper
    ``cos_sin``      False     timesteps of diffusion models: ``[cos | sin]``
    ===============  ========  ==========================================================================

    ``endpoint=True`` spreads the frequencies from 1 to ``1 / base`` inclusive: ``base ** (-i / (dim / 2 - 1))``.

    Angles are exact modulo one turn, so the result is as accurate at position 2**31 as at 7. Values are rounded once,
    to ``dtype``. For any shift, ``PE(t) . PE(t') = sum_i cos((t - t') theta_i)``.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    >>> sinusoids(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    >>> sinusoids(torch.tensor([0]), 4, layout="cos_sin").tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """
    _check(dim, base, layout, endpoint)
    if positions.dtype != torch.int64:
        raise ValueError(f"positions must be int64, got {positions.dtype}; convert them with positions.to(torch.int64)")
    step = _steps_on(positions.device, dim, base, endpoint)
    cos, sin = cos_sin(phases(positions.unsqueeze(0), step), wide(dtype))
    return _join(sin, cos, layout).to(dtype)


def waves(positions: Tensor, steps: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[..., S, P]`` of P fixed-point frequencies at int64 ``[..., S]``, exact at any position."""
    step = torch.tensor([steps], dtype=torch.int64, device=positions.device)
    return cos_sin(phases(positions.unsqueeze(0), step), dtype)


def shift_matrix(
    k: int, dim: int, *, base: float = 10_000.0, layout: Columns = "interleaved", endpoint: bool = False
) -> Tensor:
    """The matrix that moves every position by k: ``PE(t + k) = T_k PE(t)``, float64 ``[dim, dim]``.

    Each ``(sin, cos)`` pair is multiplied by ``[[cos k theta, sin k theta], [-sin k theta, cos k theta]]``, so
    ``T_k T_l = T_{k+l}`` and ``T_k`` is a rotation. (Vaswani et al. say of section 3.5 that such a matrix exists.)

    >>> shift_matrix(0, 4).tolist() == torch.eye(4).tolist()
    True
    """
    _check(dim, base, layout, endpoint)
    shift = sinusoids(torch.tensor(k), dim, base=base, layout="sin_cos", endpoint=endpoint, dtype=torch.float64)
    sin, cos = shift.chunk(2)
    index = torch.arange(dim // 2)
    # Channels numbered in the order (all sines, all cosines), laid out; argsort says where each of them went.
    s, c = _join(index, index + dim // 2, layout).argsort().chunk(2)  # the channels of every pair's sine and cosine
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    matrix[s, s], matrix[s, c] = cos, sin
    matrix[c, s], matrix[c, c] = -sin, cos
    return matrix


class Sinusoidal(Encoding):
    """`sinusoids` added to the token embeddings (which the paper first multiplies by ``sqrt(dim)``: the caller's part).

    No table and no length: any int64 position can be asked for.

    >>> Sinusoidal(dim=4).embed(torch.zeros(1, 1, 4), torch.tensor([0])).tolist()
    [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(
        self, dim: int, *, base: float = 10_000.0, layout: Columns = "interleaved", endpoint: bool = False
    ) -> None:
        super().__init__()
        _check(dim, base, layout, endpoint)
        self.dim, self.base, self.layout, self.endpoint = dim, base, layout, endpoint

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        table = sinusoids(
            positions, self.dim, base=self.base, layout=self.layout, endpoint=self.endpoint, dtype=wide(x.dtype)
        )
        return (x + table).to(x.dtype)


def _check(dim: int, base: float, layout: str, endpoint: bool) -> None:
    least = 4 if endpoint else 2
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < least or dim % 2:
        raise ValueError(f"dim must be an even integer of at least {least} (sines and cosines are pairs), got {dim!r}")
    number("base", base, above=0)
    if layout not in ("interleaved", "sin_cos", "cos_sin"):
        raise ValueError(f"layout must be 'interleaved', 'sin_cos' or 'cos_sin', got {layout!r}")


@lru_cache(maxsize=64)
def _steps(dim: int, base: float, endpoint: bool) -> tuple[int, ...]:
    if not endpoint:
        return steps(inverse_frequencies(Decimal(base), dim))
    # i / (dim/2 - 1) = 2i / (dim - 2): a width smaller by two, and then the last frequency, 1 / base
    return steps([*inverse_frequencies(Decimal(base), dim - 2), 1 / Decimal(base)])


@constant
def _steps_on(device: torch.device, dim: int, base: float, endpoint: bool) -> Tensor:
    return torch.tensor([_steps(dim, base, endpoint)], dtype=torch.int64, device=device)


def _join(sin: Tensor, cos: Tensor, layout: Columns) -> Tensor:
    if layout == "interleaved":
        return torch.stack((sin, cos), dim=-1).flatten(-2)
    return torch.cat((sin, cos) if layout == "sin_cos" else (cos, sin), dim=-1)
