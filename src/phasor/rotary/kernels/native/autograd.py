"""The rotation of the native kernel as one step of autograd, and what the extension needs to know of phases."""

import struct
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...layout import Layout
from ...rotation import Rotation
from ...spec import RotarySpec, axis_steps
from ...tables import Phases, spec_of
from ..base import Angles, Pair, tables_of
from ..norm import Norm
from ..order import ORDERS
from ..reference import Reference
from . import norm_autograd
from .extension import MODULE

MOST_PAIRS = 512  # of its tables


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


class _Rotate(torch.autograd.Function):
    """q and k rotated at once. Keeps tables or positions, nothing of q and k; its way back is itself, transposed."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor | None, angles: Any, tensor_format: str, transposed: bool, plan: Any
    ) -> Any:
        ctx.save_for_backward(*((angles.cos, angles.sin) if plan is None else (angles,)))
        ctx.set_materialize_grads(False)
        ctx.rest = angles, tensor_format, transposed, plan
        y, z = call(q, k, angles, tensor_format, transposed, plan)
        for rotated, wanted in zip((y, z), ctx.needs_input_grad, strict=False):
            if rotated is not None and not wanted:
                ctx.mark_non_differentiable(rotated)
        return y, z

    @staticmethod
    def backward(ctx: Any, of_q: Tensor | None, of_k: Tensor | None) -> Any:  # type: ignore[override]
        angles, tensor_format, transposed, plan = ctx.rest
        kept = ctx.saved_tensors  # which refuses tables that were written to since
        if plan is not None:
            angles = kept[0]
        elif kept[0] is not angles.cos or kept[1] is not angles.sin:  # a hook brought others in their place
            angles = angles.replace(cos=kept[0], sin=kept[1])
        wanted = ctx.needs_input_grad
        if of_q is not None and wanted[0]:
            both = of_k if wanted[1] else None
            d_q, d_k = _back(of_q, both, angles, tensor_format, not transposed, plan)
        else:
            d_q, d_k = None, None
            if of_k is not None and wanted[1]:
                d_k, _ = _back(of_k, None, angles, tensor_format, not transposed, plan)
        return d_q, d_k, None, None, None, None


def _back(q: Tensor, k: Tensor | None, angles: Any, tensor_format: str, transposed: bool, plan: Any) -> Pair:
    pair: Pair | None = call(q, k, angles, tensor_format, transposed, plan)
    if pair is not None:
        return pair
    # batched gradients, or others that are no plain tensors: the plain expression has rules for them
    rotation = angles if plan is None else Rotation.at(plan[1], angles, plan[2])
    rotation = rotation.transpose() if transposed else rotation
    return Reference().rotate(q, k, rotation, ORDERS[tensor_format], None)


def learn(
    q: Tensor, k: Tensor | None, angles: Any, tensor_format: str, transposed: bool, plan: Any
) -> tuple[Tensor, Tensor | None] | None:
    """What the extension calls where a gradient is wanted; None leaves what autograd cannot keep to the checks."""
    if any(t.is_inference() for t in ((angles.cos, angles.sin) if isinstance(angles, Rotation) else (angles,))):
        return None
    if isinstance(plan, Norm):
        return norm_autograd.learn(q, k, angles, plan, tensor_format)
    pair: tuple[Tensor, Tensor | None] = _Rotate.apply(q, k, angles, tensor_format, transposed, plan)
    return pair
