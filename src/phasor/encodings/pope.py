import math
from decimal import Decimal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..rotary.fixed_point import steps
from ..rotary.frequencies import inverse_frequencies
from ..support.checks import number, whole
from .base import Encoding, check_heads, wide
from .sinusoidal import waves


class PoPE(Encoding):
    """Polar: a channel's size says what, its phase where; the content has no phase of its own.

    ::

        logit = scale sum_c softplus(q_c) softplus(k_c) cos((n - m) theta_c + delta_hc),    theta_c = base ** (-c / D)

    Every channel is a pair: q and k become ``2 head_dim`` wide (so does the cache of keys; values stay). The scale is
    still ``1 / sqrt(head_dim)``, which `default_scale` knows and other attention functions must be told.

    ``delta`` ``[num_heads, head_dim]`` is learned and clipped to ``[-2 pi, 0]`` (no gradient outside). It is taken from
    the phase of the queries, so that query heads may share keys.

    Source: Gopalakrishnan et al. 2025, arXiv:2509.10534, section 3. (No code of the authors; a port is lucidrains'.)

    >>> encoding = PoPE(num_heads=1, head_dim=1)
    >>> x, t = torch.zeros(1, 1, 1, 1), torch.tensor([0])
    >>> q, _ = encoding.rotate(x, x, t, t)
    >>> q.flatten().tolist(), encoding.default_scale(2)  # softplus(0) = log 2 at the angle 0
    ([0.6931471824645996, 0.0], 1.0)
    """

    def __init__(self, num_heads: int, head_dim: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim)
        number("base", base, above=1)
        self.num_heads, self.head_dim, self.base = num_heads, head_dim, base
        self._steps = steps(inverse_frequencies(Decimal(base), 2 * head_dim))
        self.delta = nn.Parameter(torch.empty(num_heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero."""
        nn.init.zeros_(self.delta)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        check_heads(self, self.num_heads, q)
        if q.shape[-1] != self.head_dim:
            raise ValueError(f"q must have the head_dim {self.head_dim} that PoPE was made for, got {q.shape[-1]}")
        cos, sin = self._waves(q_positions, wide(q.dtype))
        delta = self.delta.clamp(-2 * math.pi, 0).to(cos.dtype).unsqueeze(-2)
        by_cos, by_sin = delta.cos(), delta.sin()  # cos(m - delta) and sin(m - delta), of the exact ones of m
        turned_q = _polar(q, cos * by_cos + sin * by_sin, sin * by_cos - cos * by_sin)
        return turned_q, _polar(k, *self._waves(k_positions, wide(k.dtype)))

    def default_scale(self, head_dim: int) -> float:
        """``1 / sqrt(head_dim)`` of the heads as they were, half as wide."""
        return (head_dim // 2) ** -0.5

    def _waves(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        cos, sin = waves(positions, self._steps, dtype)
        return cos.unsqueeze(-3), sin.unsqueeze(-3)


def _polar(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    size = softplus(x.to(cos.dtype))
    return torch.cat((size * cos, size * sin), dim=-1).to(x.dtype)
