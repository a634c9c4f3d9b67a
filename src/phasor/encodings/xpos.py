import math

import torch
from torch import Tensor

from ..rotary.apply.calls import apply_rotary
from ..rotary.rotation import Rotation
from ..rotary.spec import RotarySpec
from ..support.checks import number, whole
from ..support.tracing import readable
from .base import Encoding


class XPos(Encoding):
    """Rotary whose scores decay with distance: pair c of a query grows by a power of its position, of a key it shrinks.

    ::

        q_m = zeta_c ** (m / scale_base) R_m q,    k_n = zeta_c ** (-n / scale_base) R_n k,
        zeta_c = (2 c + gamma D) / ((1 + gamma) D) < 1

    A score has ``zeta_c ** ((m - n) / scale_base)``, at most 1 for earlier keys. Later ones would grow: it is causal.
    The paper's formula has no ``scale_base``; its code, with which models were trained, divides by 512. The paper pairs
    channels ``(2c, 2c + 1)``: give a spec with ``interleaved=True``.

    Powers are counted from the position ``origin``, and a cached key keeps its own. (The code counts from the middle of
    every call, and rotates all keys again.) Far from there they leave the range of the numbers, which is refused: after
    17,800 positions in float32 and bfloat16, 1,980 in float16.

    Source: Sun et al. 2022, arXiv:2212.10554, section 3.2; ``xpos_relative_position.py`` of microsoft/torchscale.

    >>> encoding = XPos(RotarySpec(head_dim=2, interleaved=True), scale_base=1.0, gamma=1.0)  # zeta is 1 / 2
    >>> x, t = torch.ones(1, 1, 3, 2), torch.arange(3)
    >>> q, k = encoding.rotate(x, x, t, t)
    >>> [[round(float(size), 3) for size in y.square().sum(-1).flatten()] for y in (q, k)]
    [[2.0, 0.5, 0.125], [2.0, 8.0, 32.0]]
    """

    causal_only = True

    def __init__(self, spec: RotarySpec, *, scale_base: float = 512.0, gamma: float = 0.4, origin: int = 0) -> None:
        super().__init__()
        if not isinstance(spec, RotarySpec) or spec.axes.count != 1 or spec.coordinates == "real":
            raise ValueError(f"spec must be a RotarySpec with one axis of whole positions, got {spec}")
        number("scale_base", scale_base, above=0)
        number("gamma", gamma, above=0)
        whole("origin", origin, at_least=0)
        self.spec, self.scale_base, self.gamma, self.origin = spec, scale_base, gamma, origin

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        self._check_range("q_positions", q_positions, q.dtype)
        self._check_range("k_positions", k_positions, k.dtype)
        return (
            apply_rotary(q, self._scaled_rotation(q_positions, q.dtype, 1.0)),
            apply_rotary(k, self._scaled_rotation(k_positions, k.dtype, -1.0)),
        )

    def _scaled_rotation(self, positions: Tensor, dtype: torch.dtype, sign: float) -> Rotation:
        rotation = Rotation.at(self.spec, positions, dtype=dtype)
        c = torch.arange(self.spec.pairs, dtype=torch.float64, device=positions.device)
        width = self.spec.rotary_dim
        zeta = (2 * c + self.gamma * width) / ((1 + self.gamma) * width)
        exponent = (positions - self.origin).double().unsqueeze(-1) * (sign / self.scale_base)
        exponent = exponent.masked_fill(exponent.abs() * self.scale_base > self._reach(dtype), math.nan)
        factor = (zeta**exponent).to(rotation.cos.dtype)
        return rotation.replace(cos=rotation.cos * factor, sin=rotation.sin * factor)

    def _reach(self, dtype: torch.dtype) -> int:
        """How far from the origin: the factor keeps half of the exponents of ``dtype`` free for q and k."""
        steepest = math.log((1 + self.gamma) / self.gamma)
        return int(self.scale_base * -math.log(torch.finfo(dtype).tiny) / 2 / steepest)

    def _check_range(self, name: str, positions: Tensor, dtype: torch.dtype) -> None:
        """Where values cannot be looked at, the factors beyond are NaN."""
        if not positions.numel() or not readable(positions):
            return
        reach, (low, high) = self._reach(dtype), (int(end) for end in torch.aminmax(positions))
        if max(self.origin - low, high - self.origin) > reach:
            raise ValueError(
                f"{name} must lie within {reach} of origin={self.origin} in {dtype}, got {low} to {high}; "
                "give XPos(origin=) a position amidst all tokens that meet, or a larger scale_base"
            )
