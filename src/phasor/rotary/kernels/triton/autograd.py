"""One launch of the Triton kernel for q and k, and what is launched on the way back."""

from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from ....support.tracing import watched
from ...rotation import Rotation
from ...tables import spec_of, steps_of
from ..autograd import Gradients, NormAndRotate, NormSide, Rotate, by_autograd
from ..base import Angles, Pair, is_batched, tables_of, tensors_of, unseen
from ..norm import Norm
from ..order import Order
from ..reference import Reference
from . import plans


def rotated(q: Tensor, k: Tensor | None, angles: Angles, order: Order, transposed: bool, dtype: torch.dtype) -> Pair:
    """q and k rotated, in new memory; differentiable in both."""
    if torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad)):
        dtypes = (q.dtype, dtype) if transposed else (dtype, q.dtype)
        turn = partial(_turned, angles, order, dtypes)
        return Rotate.apply(q, k, turn, tensors_of(angles), transposed)  # type: ignore[no-any-return]
    return new(q, k, angles, order, transposed, dtype)


def new(
    q: Tensor, k: Tensor | None, angles: Angles, order: Order, transposed: bool, dtype: torch.dtype,
    steps: Tensor | None = None,
) -> Pair:  # fmt: skip
    """The same without autograd."""
    y, z = (
        None if x is None else torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format) for x in (q, k)
    )
    assert y is not None
    launched(q, k, y, z, angles, order, transposed, steps=steps)
    return y, z


def normed(q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm) -> Pair:
    """Normalised and rotated, in new memory."""
    y, z = (None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
    assert y is not None
    launched(q, k, y, z, rotation, order, False, norm)
    return y, z


def launched(
    q: Tensor, k: Tensor | None, y: Tensor, z: Tensor | None, angles: Angles, order: Order, transposed: bool,
    norm: Norm | None = None, steps: Tensor | None = None,
) -> None:  # fmt: skip
    """Rotates q and k into y and z, after a norm if there is one; by steps ``[axes, P]``, else those that are kept."""
    from . import launch
    from .rotate import rotate

    key = plans.key_of(q, k, y, z, angles, order, transposed, norm)
    plan = None if key is None else plans.PLANS.get(key)
    if plan is not None and plans.goes(plan, q, k, y, z, angles, norm):
        return
    layout, rounded, negate = angles.layout, False, transposed
    if isinstance(angles, Rotation):
        given = launch.of_tables(angles.cos, angles.sin, angles.per_head)
        once = norm is not None and norm.rounding == "once"
        rounded = not once and torch.promote_types(q.dtype, angles.cos.dtype).itemsize == 2
        as_it_lies = given.tensors[2] is angles.cos and given.tensors[3] is angles.sin
    else:
        reverse, factor = _sense(angles.spec.key, angles.seq_len)
        steps = steps_of(angles.spec, angles.seq_len, False, q.device)[0] if steps is None else steps
        given, negate = launch.of_positions(angles.positions, steps, factor), reverse != transposed
        as_it_lies = angles.seq_len is None
    x, w = launch.in_memory(q, order), None if k is None else launch.in_memory(k, order)
    if norm is not None:  # a launch that is kept is given the addresses of the weights, not of copies
        as_it_lies = as_it_lies and all(
            a is b for a, b in zip(norm[:2], launch.of_norm(norm)[0], strict=False) if a is not None
        )
    again = rotate(x, w, y, z, given, layout.transposed() if transposed else layout, order, negate, rounded, norm)
    if again is not None and as_it_lies and x is q and w is k and key is not None:
        plans.keep(key, again, q, k, angles, steps)


@lru_cache(maxsize=512)
def _sense(key: str, seq_len: int | None) -> tuple[bool, float]:
    """Direction and magnitude of a spec at a length."""
    spec = spec_of(key)
    return spec.reverse, spec.attention_factor(seq_len)


def _turned(
    angles: Angles, order: Order, dtypes: tuple[torch.dtype, ...], q: Tensor, k: Tensor | None, kept: Any,
    transposed: bool,
) -> Pair:  # fmt: skip
    """``dtypes``: those of what is rotated, and of what is rotated by the transposed rotation."""
    if not (unseen(q, k) or watched() or any(is_batched(x) for x in (q, k) if x is not None)):
        return rotated(q, k, angles, order, transposed, dtypes[transposed])
    # batched gradients, or others that are no plain tensors: the plain expression has rules for them
    rotation = tables_of(angles).transpose() if transposed else tables_of(angles)
    y, z = Reference().rotate(q, k, rotation, order, None)
    return y.to(dtypes[transposed]), None if z is None else z.to(dtypes[transposed])


def normed_and_learns(q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm) -> Pair:
    """Normalised and rotated in one launch, and back in one."""
    weights = norm.q_weight, norm.k_weight
    return NormAndRotate.apply(q, k, *weights, rotation, norm, order, normed, _normed_back)  # type: ignore[no-any-return]


def _normed_back(sides: list[NormSide], rotation: Rotation, norm: Norm, order: Order) -> list[Gradients]:
    if watched() or any(unseen(s.of_result, None) or is_batched(s.of_result) for s in sides):
        return [by_autograd(s, rotation, norm, order) for s in sides]
    if not sides:
        return []
    from .norm_backward import rotate_back

    norm = norm._replace(q_weight=sides[0].weight, k_weight=sides[-1].weight)
    of_weights = any(s.of_weight for s in sides)
    found = rotate_back([s.x for s in sides], [s.of_result for s in sides], rotation, order, norm, of_weights)
    return [(x if s.of_x else None, w if s.of_weight else None) for s, (x, w) in zip(sides, found, strict=True)]
