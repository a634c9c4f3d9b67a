"""Phases, and cosine and sine of them, in few operations: for eager mode, where each is a launch or a pass over memory.

The bits are those of `phase.cos_sin`, which is for compilers: they fuse operations, and like numbers, not tensors.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from .fixed_point import TURN_BITS
from .phase import COS, RADIANS_PER_UNIT, SIN

FEW = 2**12  # phases up to which a CPU is sooner done with fewer operations than with fewer bytes

_QUARTER_TURN = 1 << (TURN_BITS - 2)


def is_better(positions: Tensor, pairs: int) -> bool:
    """Whether fewer operations take less time than `phase.cos_sin` does: a tenth more bytes go through memory."""
    return positions.device.type in ("cuda", "meta") or (positions.is_cpu and positions.numel() * pairs <= FEW)


def cos_sin(positions: Sequence[Tensor], step: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Cosine and sine of `phase.phases`: one ``[..., S]`` and one ``[P]`` per axis -> two ``[..., S, P]`` in float32.

    Cosine is the sine a quarter turn later, so both are one tensor ``[2, ..., S, P]``. Where one of them is near 1, it
    is the polynomial of the cosine, ``1 + 1 m``, else that of the sine, ``x + x m``; its sign is that of the phase. No
    operation on floats has a product and a sum, which a GPU may round as one.

    >>> c, s = cos_sin([torch.tensor([0, 1, 2])], [torch.tensor([2**62])])
    >>> c.flatten().tolist(), s.flatten().tolist()
    ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0])
    """
    phase, quarter, one, scale, *ladder = _constants(positions[0].ndim + 1, step[0].device)
    for at, turns in zip(positions, step, strict=True):
        phase = torch.addcmul(phase, at.unsqueeze(-1), turns)
    near_one = torch.add(quarter, phase, alpha=2) < 0
    x = (phase << 2) * scale  # four times the rest, of which the shift leaves no quarter turn, and a fourth of the unit
    z = x * x
    m = ladder[0] * z
    for factor in ladder[1:]:
        m.add_(factor).mul_(z)
    of_cos, of_sin = m.unbind()
    start = torch.where(near_one, one, x).copysign_(phase)
    cos, sin = torch.where(near_one, of_cos, of_sin).mul_(start).add_(start).unbind()
    return cos, sin


@cache  # of a few devices and ranks; for good, because a CUDA graph keeps only their addresses
def _constants(rank: int, device: torch.device) -> tuple[Tensor, ...]:
    """How much later cosine and sine are; a quarter turn, 1, the unit of rests; and both polynomials, stacked."""
    with torch.inference_mode(False):
        integers = torch.tensor([_QUARTER_TURN, 0, _QUARTER_TURN], device=device)
        floats = torch.tensor([1.0, RADIANS_PER_UNIT / 4], dtype=torch.float32, device=device)
        # the sine is a degree shorter: its first product is 0, and the sum with it exact
        polynomials = torch.tensor([COS[::-1], (0.0, *SIN[::-1])], dtype=torch.float32, device=device)
        stacked = 2, *[1] * rank
        return (
            integers[:2].view(stacked), integers[2], *floats.unbind(), *(c.view(stacked) for c in polynomials.unbind(1))
        )  # fmt: skip
