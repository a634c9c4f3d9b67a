import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..rotary.apply.calls import apply_rotary_qk
from ..rotary.fixed_point import steps
from ..rotary.layout import Layout
from ..rotary.rotation import Rotation
from ..support.checks import number, whole
from .base import Encoding, check_heads, wide
from .high_frequency import fast_frequencies
from .sinusoidal import waves


class FoPE(Encoding):
    """Fourier position embedding: each pair is turned by a sum of waves, and slow pairs by a constant.

    ::

        cos'_c(t) = sum_w cos_coef_hwc cos(w t),    sin'_c(t) = sum_w sin_coef_hwc sin(w t)

    The waves are RoPE's frequencies that turn at least once in ``trained`` tokens. At most ``head_dim / 4`` pairs are
    sums; the others are constant, with the cosine 1 and the sine ``constant_sin``: 1 in the authors' code, with which
    models were trained (it doubles their part of the logits), 0 in the paper. Not a rotation: norms change.

    The coefficients ``[num_heads, waves, sums]`` are drawn, and not trained unless you ask with ``requires_grad_()``.

    Source: Hua et al. 2024, arXiv:2412.17739, section 4; ``FourierEmbedding`` of TsinghuaC3I.

    >>> encoding = FoPE(num_heads=1, head_dim=4, trained=64, gain=0.0)  # one wave, alone in one sum: RoPE's first pair
    >>> q, t = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 1, 1, 4), torch.tensor([1])
    >>> [round(x, 4) for x in encoding.rotate(q, q, t, t)[0].flatten().tolist()]  # cos 1 and 1, sin 1 and 1
    [0.5403, 1.0, 0.8415, 1.0]
    """

    def __init__(
        self, num_heads: int, head_dim: int, trained: int, *,
        base: float = 10_000.0, constant_sin: float = 1.0, gain: float = 0.3,
    ) -> None:  # fmt: skip
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_dim", head_dim, at_least=4)
        number("constant_sin", constant_sin)
        number("gain", gain, at_least=0)
        self.num_heads, self.constant_sin, self.gain = num_heads, constant_sin, gain
        self.layout = Layout(head_dim=head_dim)
        self._steps = steps(fast_frequencies(head_dim, trained, base))
        shape = num_heads, len(self._steps), min(len(self._steps), head_dim // 4)
        self.cos_coef, self.sin_coef = (nn.Parameter(torch.empty(shape), requires_grad=False) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Each sum one wave, in equal steps, and Glorot's normal times ``gain`` (0.3, 0.4 or 0.6 in their models)."""
        _, count, sums = self.cos_coef.shape
        one = torch.zeros_like(self.cos_coef)
        for c, wave in zip(range(sums), range(0, count, math.ceil(count / sums)), strict=False):
            one[:, wave, c] = 1.0
        for coef in (self.cos_coef, self.sin_coef):
            nn.init.xavier_normal_(coef, gain=self.gain)
            with torch.no_grad():
                coef.add_(one)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        check_heads(self, self.num_heads, q, k=k)
        of_q = self._tables(q_positions, wide(q.dtype))
        of_k = None if k_positions is q_positions else self._tables(k_positions, wide(k.dtype))
        return apply_rotary_qk(q, k, of_q, k_rotation=of_k)

    def _tables(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        cos, sin = waves(positions, self._steps, dtype)
        cos, sin = self._summed(cos, self.cos_coef, 1.0), self._summed(sin, self.sin_coef, self.constant_sin)
        return Rotation(cos=cos, sin=sin, layout=self.layout, per_head=True)

    def _summed(self, wave: Tensor, coef: Tensor, constant: float) -> Tensor:
        """``[(B,) H, S, P]`` of waves ``[(B,) S, waves]``."""
        sums = wave.unsqueeze(-3) @ coef.to(wave.dtype)
        return pad(sums, (0, self.layout.pairs - sums.shape[-1]), value=constant)

    def extra_repr(self) -> str:
        _, count, sums = self.cos_coef.shape
        return f"num_heads={self.num_heads}, waves={count}, sums={sums}, constant_sin={self.constant_sin:g}"
