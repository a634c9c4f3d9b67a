"""What the extension needs to know of phases, and what it calls where a gradient is wanted."""

import struct
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from ...layout import Layout
from ...rotation import Rotation
from ...spec import RotarySpec, axis_steps
from ...tables import Phases, spec_of
from ..autograd import Gradients, NormAndRotate, NormSide, Rotate, by_autograd
from ..base import Angles, Pair, tables_of
from ..norm import Norm
from ..order import ORDERS, Order, format_of
from ..reference import Reference
from .extension import MODULE

MOST_PAIRS = 512  # of its tables
PIECES = 32  # sums that it makes for the gradient of a weight, in float64


def call(
    q: Tensor, k: Tensor | None, angles: Any, tensor_format: str, transposed: bool, plan: Any, out: Any = None
) -> Any:
    """q and k rotated by the extension, by tables or, with a plan, by positions; None where it declines."""
    if plan is None:
        return MODULE.apply(q, k, angles, tensor_format, transposed, None, out, None)
    return MODULE.rotate(q, k, angles, tensor_format, transposed, None, out, None, plan)


def given_to(angles: Angles) -> tuple[Any, Any]:
    """Positions and a plan where it can form the phases itself; else tables, and no plan."""
    if isinstance(angles, Phases) and angles.log_scale is None and (plan := plan_of(angles.spec.key, angles.seq_len)):
        at = angles.positions
        return (at[0] if len(at) == 1 else torch.stack(at)), plan
    return tables_of(angles), None


@lru_cache(maxsize=512)
def plan_of(key: str, seq_len: int | None) -> tuple[Any, RotarySpec, int | None] | None:
    """What the extension needs of a spec at a length, or None where it does not form the phases."""
    spec = spec_of(key)
    exact = spec.angles == "exact" and spec.coordinates == "integer" and not spec.learned and spec.second is None
    if not exact or spec.pairs > MOST_PAIRS or (spec.length_dependent and seq_len is None):
        return None
    if seq_len is not None and seq_len < 1:
        return None
    steps = [step for row in axis_steps(spec, seq_len) for step in row]
    sign, factor = -1.0 if spec.reverse else 1.0, spec.attention_factor(seq_len)
    return MODULE.plan(spec.layout, sign, factor, struct.pack(f"{len(steps)}q", *steps), spec.pairs), spec, seq_len


def plan_of_steps(steps: list[int], factor: float) -> tuple[Any]:
    """What the extension needs for heads whose pairs are halves: a step for each, and the factor on cos and sin."""
    layout = Layout(head_dim=2 * len(steps))
    return (MODULE.plan(layout, 1.0, factor, struct.pack(f"{len(steps)}q", *steps), len(steps)),)


@lru_cache(maxsize=512)
def change_of(old: str, new: str, apart: bool) -> tuple[Any] | None:
    """The same of a rotation from one spec to another, both without lengths: steps of the new one less those of the old
    one, or, if their positions are ``apart``, those of the new one and then those of the old one, negative.
    """
    specs = [spec_of(key) for key in (new, old)]
    if any(plan_of(key, None) is None for key in (new, old)) or specs[0].layout.written() != specs[1].layout.written():
        return None
    after, before = ([[-s if spec.reverse else s for s in row] for row in axis_steps(spec)] for spec in specs)
    if apart:
        rows = [*after, *([-s for s in row] for row in before)]
    else:
        rows = [[s - t for s, t in zip(*both, strict=True)] for both in zip(after, before, strict=True)]
    steps = [(s + 2**63) % 2**64 - 2**63 for row in rows for s in row]
    factor = specs[0].attention_factor() / specs[1].attention_factor()
    packed = struct.pack(f"{len(steps)}q", *steps)
    return (MODULE.plan(specs[1].layout.written(), 1.0, factor, packed, specs[1].pairs),)


def _turned(
    angles: Any, tensor_format: str, plan: Any, q: Tensor, k: Tensor | None, kept: tuple[Tensor, ...], transposed: bool
) -> Pair:
    """q and k rotated by what autograd kept: by positions with a plan, else by the tables of a rotation."""
    if plan is not None:
        angles = kept[0]
    elif kept[0] is not angles.cos or kept[1] is not angles.sin:  # a hook brought others in their place
        angles = angles.replace(cos=kept[0], sin=kept[1])
    pair: Pair | None = call(q, k, angles, tensor_format, transposed, plan)
    if pair is not None:
        return pair
    # batched gradients, or others that are no plain tensors: the plain expression has rules for them
    rotation = angles if plan is None else Rotation.at(plan[1], angles, plan[2])
    return Reference().rotate(q, k, rotation.transpose() if transposed else rotation, ORDERS[tensor_format], None)


def _normed(q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm) -> Pair:
    pair: Pair | None = MODULE.norm_and_rotate(q, k, rotation, format_of(order), False, None, None, norm)
    return pair or Reference().norm_and_rotate(q, k, rotation, order, norm, None)


def _normed_back(sides: list[NormSide], rotation: Rotation, norm: Norm, order: Order) -> list[Gradients]:
    """In one pass of each side; by the plain expression after a norm that comes last, and of batched gradients."""
    found: list[Gradients] = []
    for side in sides:
        one, sums = norm._replace(q_weight=side.weight, k_weight=None), None
        if side.of_weight and side.weight is not None:
            sums = torch.zeros(PIECES, side.weight.numel(), dtype=torch.float64)
        given = side.of_result, None, rotation, format_of(order), True, None, None, one, side.x, None, sums, None
        if (done := MODULE.back(*given)) is None:
            found.append(by_autograd(side, rotation, norm, order))
        else:
            found.append((done[0], None if sums is None else sums.sum(0).to(side.weight.dtype)))  # type: ignore[union-attr]
    return found


def learn(
    q: Tensor, k: Tensor | None, angles: Any, tensor_format: str, transposed: bool, plan: Any
) -> tuple[Tensor, Tensor | None] | None:
    """What the extension calls where a gradient is wanted; None leaves what autograd cannot keep to the checks."""
    kept = (angles.cos, angles.sin) if isinstance(angles, Rotation) else (angles,)
    if any(t.is_inference() for t in kept):
        return None
    if isinstance(plan, Norm):
        about = angles, plan, ORDERS[tensor_format], _normed, _normed_back
        return NormAndRotate.apply(q, k, plan.q_weight, plan.k_weight, *about)  # type: ignore[no-any-return]
    turn = partial(_turned, angles, tensor_format, plan)
    return Rotate.apply(q, k, turn, kept, transposed)  # type: ignore[no-any-return]
