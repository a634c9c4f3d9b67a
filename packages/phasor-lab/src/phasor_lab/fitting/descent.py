"""A search for divisors by the gradient of their loss: the best formula first, then steps downhill from it.

The step rule is Adam (arXiv:1412.6980) with a cosine schedule, over the logarithms of the divisors.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

STEP = 0.3  # of a logarithm, of pairs that rotate less than once in the trained length
MOMENTS = (0.8, 0.95)
FLOOR = 1e-3  # nats: a gradient that is small beside it moves a pair by less than a full step
LARGEST = 2.0  # times the stretch
AVERAGED = 0.25  # of the steps, the last ones


def descend(
    gradient: Callable[[int, Tensor], Tensor],
    start: Tensor,
    wavelengths: Tensor,
    trained: int,
    stretch: float,
    *,
    steps: int,
) -> Tensor:
    """Divisors ``[P]`` of a lower loss than those of ``start``: the geometric mean of the last steps.

    ``gradient(step, logarithms)`` gives ``[1 + P]``: a loss, and its derivative by the logarithm of each divisor. A
    pair that rotates ``n`` times in the ``trained`` length goes ``n`` times shorter steps, so that no angle there
    moves further than another. A divisor lies between 1 and `LARGEST` times the ``stretch``.

    >>> target = torch.tensor([1.0, 3.0], dtype=torch.float64)
    >>> def gradient(step, logarithms):
    ...     away = logarithms - target.log()
    ...     return torch.cat([(away**2).sum()[None], 2 * away])
    >>> start, waves = torch.ones(2, dtype=torch.float64), torch.tensor([6.0, 600.0], dtype=torch.float64)
    >>> [round(d, 1) for d in descend(gradient, start, waves, 100, 4.0, steps=60).tolist()]
    [1.0, 3.0]
    """
    reach = (wavelengths / trained).clamp(max=1.0)
    here, kept = start.log(), []
    moved = torch.zeros_like(here)  # in units of the reach of each
    optimizer = torch.optim.Adam([moved], betas=MOMENTS, eps=FLOOR)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = STEP * (1 + math.cos(math.pi * step / steps)) / 2
        moved.grad = gradient(step, here)[1:] * reach
        optimizer.step()
        here = (start.log() + moved * reach).clamp(0.0, math.log(LARGEST * stretch))
        moved.copy_((here - start.log()) / reach)
        kept.append(here)
    if not kept:
        return start
    last = kept[-math.ceil(AVERAGED * len(kept)) :]
    return (sum(last[1:], last[0]) / len(last)).exp()
