"""Wrong values that a tolerance hides: inside it, and yet no rounding of right code explains them.

A tolerance allows for float32 angles, which are off by more the farther out, and for other roundings in half precision.
Legitimate rounding differences affect a whole channel pair at every position and head: frequencies are a few float32
steps apart, or tables or products are rounded. So each way of forming tables and of rounding is tried on whole pairs.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from .case import RotationCase, radians, tables_at
from .comparison import Comparison
from .tensors import WIDEST

STEPS = 8  # of float32 by which a frequency may be off: scalings take some operations
CLOSE = 1e-6  # float32 values that were formed by the same arithmetic, on whichever machine
HALVES = (torch.bfloat16, torch.float16)
FEW = 0.01  # of all values
SINGLE = 4  # values at most; more of them are an arithmetic that is not known here


def unexplained(c: Comparison) -> Tensor:
    """Where a value is inside the tolerance, and does not agree among values that do."""
    if c.dtype != torch.bfloat16 and c.tolerance.relative > CLOSE:  # somebody allows for half precision
        return torch.zeros_like(c.beyond)
    loose = ~agrees(c) & ~c.beyond
    if not loose.any():
        return loose
    if c.case is None:
        return loose & (int((loose | c.beyond).sum()) <= max(1, FEW * loose.numel()))
    if int((c.got.to(c.dtype).double() != c.expected).sum()) == 1:  # all others to the bit
        return loose
    if float(loose.double().mean()) > 1 / 2:
        return torch.zeros_like(loose)
    models_own = c.short.startswith("model.")
    odd = loose & _unlike_any_rounding(c, inside=models_own)
    if int((odd | c.beyond).sum()) <= SINGLE:
        return odd
    rounds_inside = not models_own and not (loose & _unlike_any_rounding(c, inside=True)).any()
    return odd & rounds_inside


def agrees(c: Comparison) -> Tensor:
    """Where a value is the golden one, but for the last bits."""
    apart, size = (c.got - c.expected).abs(), c.expected.abs()
    if not c.dtype.is_floating_point or c.angles.ndim == 0:
        return apart <= CLOSE * size
    reach = c.angles.clamp(max=1.0)  # a small angle is known as well as its frequency
    close = (WIDEST if c.short.endswith("_out") else 1.0) * CLOSE * (size + reach) + 1e-9
    near = apart <= close
    if c.unrounded is not None:
        near = near | (
            (c.got - c.unrounded).abs() <= step(torch.maximum(size, c.got.abs()), torch.bfloat16) / 2 + close
        )
    return near if c.doubtful is None else near | c.doubtful


def _unlike_any_rounding(c: Comparison, *, inside: bool) -> Tensor:
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
    unlike = torch.zeros(c.got.shape, dtype=torch.bool)
    for side, channels in zip(odd, c.columns, strict=True):
        unlike[..., channels] = side
    return unlike


def _ways(c: Comparison, case: RotationCase, inside: bool) -> Iterator[tuple[Tensor, ...]]:
    """Where the values of each pair are not what one way gives: both channels, or cos and sin where both were given."""
    halves = {c.other_dtype} & set(HALVES) or ({c.dtype} & set(HALVES))
    kept = [None] if c.other_dtype not in HALVES else []
    what = c.short.rpartition(".")[2]
    for angles in _angles(case, what.endswith("second")):
        reach = angles.abs().clamp(max=1.0)
        cos, sin = tables_at(case, angles)
        if not what.endswith("_out"):
            this, other = (cos, sin) if what.startswith("cos") else (sin, cos)
            for half in (*kept, *halves):
                pairs = ((c.got, this),) if c.sibling is None else ((c.got, this), (c.sibling, other))
                yield tuple(_off(got, value, reach, half) for got, value in pairs)
            continue
        assert c.columns is not None and c.inputs is not None
        got = [c.got[..., side] for side in c.columns]
        x = case.spec.layout.split(c.inputs.double())
        sin = -sin if what.startswith("output") else sin
        for half in (*kept, *halves):
            for value in _rotated(x, cos, sin, half if inside else None):
                yield tuple(_off(g, y, WIDEST * reach, half, WIDEST) for g, y in zip(got, value, strict=True))


def _angles(case: RotationCase, second: bool) -> Iterator[Tensor]:
    """The angles ``[S, P]``: exact ones; those of float32 frequencies, positions and products rounded or not."""
    yield radians(case, second=second)
    own = case.spec.inv_freq(case.seq_len).float()
    coarse = case.replace(positions=case.positions.float().double())
    whole = not torch.equal(coarse.positions, case.positions.double())
    for steps in sorted(range(-STEPS, STEPS + 1), key=abs):
        moved = torch.where(own > 0, (own.view(torch.int32) + steps).view(torch.float32), own).double()
        yield radians(coarse.replace(frequencies=moved), second=second).float().double()
        finer = radians(case.replace(frequencies=moved), second=second)
        yield finer
        if whole:
            yield finer.float().double()


def _rotated(
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
