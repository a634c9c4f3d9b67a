"""BiPE: a place inside each segment of a text, and the number of the segment."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..support.checks import whole
from .alibi import ALiBi
from .base import Encoding, ScoreMod
from .learned import Learned
from .rotary import Rotary

SEGMENT = 2**32  # positions between the beginnings of two segments: more than any segment has tokens


def bipe_positions(ids: Tensor, separators: Sequence[int]) -> Tensor:
    """``segment * 2**32 + place`` of every token, int64 ``[..., S]``: what `BiPE` takes as positions.

    A separator (a full stop, a new line) belongs to the segment that it closes. The numbers rise with the text, so
    causal masks, caches and packing go by them as by any positions. Tokens that are decoded: those of all ids so far,
    the last ones.

    Source: He et al. 2024, arXiv:2401.16421, section 3.

    >>> positions = bipe_positions(torch.tensor([5, 6, 0, 7, 8]), separators=[0])
    >>> (positions // 2**32).tolist(), (positions % 2**32).tolist()
    ([0, 0, 0, 1, 1], [0, 1, 2, 0, 1])
    """
    closes = torch.isin(ids, torch.tensor(list(separators), dtype=ids.dtype, device=ids.device))
    segment = closes.cumsum(-1) - closes.long()
    token = torch.arange(ids.shape[-1], device=ids.device).expand_as(ids)
    first = segment.diff(dim=-1, prepend=segment[..., :1] - 1) > 0
    start = torch.where(first, token, 0).cummax(-1).values
    return segment * SEGMENT + (token - start)


class BiPE(Encoding):
    """Two levels: a learned vector for the place inside a segment, and `Rotary` or `ALiBi` between segments.

    Positions are those of `bipe_positions`. Places behind the last one of the table share it, as in the authors' code.
    Segments stand ``step`` apart: 96 with their ALiBi, whose slopes they multiply by it; their rotary pairs are halves.

    Source: He et al. 2024, arXiv:2401.16421, section 3; github.com/zhenyuhe00/BiPE.

    >>> from phasor.encodings import ALiBi
    >>> encoding = BiPE(num_places=4, dim=2, between=ALiBi(num_heads=8), step=96)
    >>> t, q = bipe_positions(torch.tensor([5, 0, 5]), [0]), torch.zeros(1, 8, 1, 2)
    >>> encoding.bias(q, q, t[2:], t, scale=1.0)[0, 0].tolist()  # one segment apart: slope 1/2, times 96
    [-48.0, -48.0, -0.0]
    """

    causal_only = True

    def __init__(self, num_places: int, dim: int, between: Rotary | ALiBi, *, step: int = 1) -> None:
        super().__init__()
        whole("step", step)
        if not isinstance(between, Rotary | ALiBi):
            raise ValueError(
                f"between must be a Rotary or an ALiBi, as BiPE was published, got {type(between).__name__}"
            )
        if between.window is not None:
            raise ValueError(
                f"between must have no window, as positions leap from segment to segment, got {between.window}; "
                "hide keys with attn_mask"
            )
        self.places, self.between, self.step = Learned(num_places, dim), between, step

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.places.embed(x, positions.remainder(SEGMENT).clamp(max=self.places.table.num_embeddings - 1))

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.between.rotate(q, k, self._segments(q_positions), self._segments(k_positions))

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor | None:
        return self.between.bias(q, k, self._segments(q_positions), self._segments(k_positions), scale)

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod | None:
        return self.between.score_mod(self._segments(q_positions), self._segments(k_positions))

    def _segments(self, positions: Tensor) -> Tensor:
        return positions.div(SEGMENT, rounding_mode="floor") * self.step
