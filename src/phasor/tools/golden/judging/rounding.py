"""What sound code gives beside the golden values: frequencies a few float32 steps apart, other roundings in half.

Code that is off for such a reason is off in a whole pair alike: at all positions, in all heads, both channels, cos and
sin. So each way of forming the tables and of rounding is tried on whole pairs; what none of them gives is no rounding.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..writing.tensors import WIDEST
from .case import Case, radians, tables_at

if TYPE_CHECKING:
    from .comparison import Comparison

STEPS = 8  # of float32 by which a frequency may be off: scalings take some operations
CLOSE = 1e-6  # float32 values that were formed by the same arithmetic, on whichever machine
HALVES = (torch.bfloat16, torch.float16)


def unsound(c: "Comparison", *, inside: bool) -> Tensor:
    """Where a value is none that sound code gives, by the way that explains most of its pair.

    ``inside``: code may round cos and sin to half precision, and every product.
    """
    assert c.case is not None
    fewest: Tensor | None = None
    odd: tuple[Tensor, ...] = ()
    for off in _ways(c, c.case, inside):
        count = torch.stack([o.flatten(0, -2).sum(0) for o in off]).sum(0)  # [P]: a pair has one frequency everywhere
        if fewest is None:
            fewest, odd = count, off
            continue
        better = count < fewest
        fewest = torch.minimum(count, fewest)
        odd = tuple(torch.where(better, new, old) for new, old in zip(off, odd, strict=True))
    if c.columns is None:
        return odd[0]
    found = torch.zeros(c.got.shape, dtype=torch.bool)
    for side, channels in zip(odd, c.columns, strict=True):
        found[..., channels] = side
    return found


def _ways(c: "Comparison", case: Case, inside: bool) -> Iterator[tuple[Tensor, ...]]:
    """Where the values of each pair are not what one way gives: both channels, or cos and sin where both were given."""
    halves = {c.came} & set(HALVES) or ({c.dtype} & set(HALVES))
    kept = [None] if c.came not in HALVES else []
    what = c.short.rpartition(".")[2]
    for angles in _angles(case, what.endswith("second")):
        reach = angles.abs().clamp(max=1.0)
        cos, sin = tables_at(case, angles)
        if not what.endswith("_out"):
            mine, other = (cos, sin) if what.startswith("cos") else (sin, cos)
            for half in (*kept, *halves):
                pairs = ((c.got, mine),) if c.beside is None else ((c.got, mine), (c.beside, other))
                yield tuple(_off(got, value, reach, half) for got, value in pairs)
            continue
        assert c.columns is not None and c.inputs is not None
        got = [c.got[..., side] for side in c.columns]
        x = case.spec.layout.split(c.inputs.double())
        sin = -sin if what.startswith("output") else sin
        for half in (*kept, *halves):
            for value in _rotateed(x, cos, sin, half if inside else None):
                yield tuple(_off(g, y, WIDEST * reach, half, WIDEST) for g, y in zip(got, value, strict=True))


def _angles(case: Case, second: bool) -> Iterator[Tensor]:
    """The angles ``[S, P]``: exact ones, and those of float32 frequencies, the product rounded or not."""
    yield radians(case, second=second)
    own = case.spec.inv_freq(case.seq_len).float()
    coarse = case.replace(positions=case.positions.float().double())
    for steps in sorted(range(-STEPS, STEPS + 1), key=abs):
        moved = torch.where(own > 0, (own.view(torch.int32) + steps).view(torch.float32), own).double()
        yield radians(coarse.replace(frequencies=moved), second=second).float().double()
        yield radians(case.replace(frequencies=moved), second=second)


def _rotateed(
    x: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor, inside: torch.dtype | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Both members before the last rounding: by these tables; where code may round ``inside``, as models' own does, by
    rounded ones; with every product rounded too.
    """
    a, b = x
    yield a * cos - b * sin, b * cos + a * sin
    if inside is not None:
        cos, sin = cos.to(inside).double(), sin.to(inside).double()
        yield a * cos - b * sin, b * cos + a * sin
        p, q, r, s = ((u * t).to(inside).double() for u, t in ((a, cos), (b, sin), (b, cos), (a, sin)))
        yield p - q, r + s


def _off(got: Tensor, value: Tensor, reach: Tensor, half: torch.dtype | None, scale: float = 1.0) -> Tensor:
    """Where ``got`` is not ``value``, rounded."""
    allowed = CLOSE * (scale * value.abs() + reach) + 1e-9
    return (got - value).abs() > (
        allowed if half is None else allowed + step(torch.maximum(value.abs(), got.abs()), half) / 2
    )


def step(size: Tensor, half: torch.dtype) -> Tensor:
    """The distance between two values of half precision around this size."""
    least = torch.finfo(half).smallest_normal
    return 2.0 ** size.clamp(min=least).log2().floor() * torch.finfo(half).eps
