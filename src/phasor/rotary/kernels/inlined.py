"""The plain expression of few tokens for a compiler of GPU code: cos and sin formed where they rotate, in no table.

Such a compiler keeps a result that took many operations and is used twice; it takes no memory only if it is as large as
what it is fused into. So phases are expanded to the channels of all heads first, and a head is rotated in one piece, by
itself and by its pairs exchanged. That repeats cos and sin for every head, which costs less than a launch while tokens
are few, and more than to read a table when they are many.
"""

import torch
from torch import Tensor

from ...support.tracing import constant, exporting, known
from ..phase import cos_sin, phases
from ..rotation import Rotation
from ..spec import axis_steps
from ..tables import Phases, spec_of
from .base import Angles
from .order import Order

FEW = 2**20  # elements of q up to which a launch costs more than to form cos and sin for every head


def is_better(q: Tensor, k: Tensor | None, angles: Angles) -> bool:
    """Whether a compiler writes GPU code for few tokens, and the pairs fill the head.

    Not where a gradient is needed: for it the compiler would keep what was formed for every head. Not in an exported
    program, which is for few tokens and many.
    """
    if not torch.compiler.is_compiling() or exporting():
        return False
    if q.device.type in ("cpu", "meta") or isinstance(angles, Rotation):
        return False
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k)):
        return False
    layout = angles.layout
    fills = layout.rotary_dim == layout.head_dim and not layout.permuted
    return fills and angles.second is None and angles.of_steps and known(q.numel() <= FEW)


def rotated(x: Tensor, angles: Phases, order: Order) -> Tensor:
    """`reference.rotated` by phases: ``x cos + exchanged(x) (-sin or sin)``, the same products and sums."""
    wide = torch.promote_types(x.dtype, torch.float32)
    steps, sign = _channel_steps(angles, x.device, wide)
    phase = phases(angles.positions, steps)
    phase, _ = order.line_up((phase, phase), per_head=False)
    cos, sin = cos_sin(phase.expand(x.shape), wide)
    factor = angles.spec.attention_factor(angles.seq_len)
    if factor != 1.0:
        cos, sin = cos * factor, sin * factor
    heads = x.to(wide)
    y = heads * cos + _exchanged(heads, angles) * (sin * sign)
    return y.to(x.dtype).clone(memory_format=torch.contiguous_format)


def _exchanged(x: Tensor, angles: Phases) -> Tensor:
    """The two channels of every pair in each other's place."""
    if angles.layout.interleaved:
        return torch.unflatten(x, -1, (-1, 2)).flip(-1).flatten(-2)
    return torch.unflatten(x, -1, (angles.layout.blocks, 2, -1)).flip(-2).flatten(-3)


def _channel_steps(phases: Phases, device: torch.device, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Of each axis ``[head_dim]`` steps, the same for both channels of a pair; and the signs of their sines."""
    rows, signs = _channel_values(phases.spec.key, phases.seq_len)
    return [torch.tensor(row, dtype=torch.int64, device=device) for row in rows], torch.tensor(
        signs, dtype=dtype, device=device
    )


@constant
def _channel_values(key: str, seq_len: int | None) -> tuple[list[list[int]], list[float]]:
    """Of a layout whose pairs fill the head."""
    spec = spec_of(key)
    place = torch.tensor(spec.layout.channels(), device="cpu").argsort()  # first channels of all pairs, then second
    sense = -1.0 if spec.reverse else 1.0
    signs = torch.tensor([-sense] * spec.pairs + [sense] * spec.pairs, device="cpu")[place]
    steps = torch.tensor(axis_steps(spec, seq_len), dtype=torch.int64, device="cpu")
    return steps.repeat(1, 2)[:, place].tolist(), signs.tolist()
