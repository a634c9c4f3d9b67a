"""The Triton kernel as an operator of torch: one node in the graph that torch.compile makes for a GPU, one launch.

What a compiler writes for the expression itself takes more: it forms cos and sin again for every head, which costs more
than to move its bytes, or keeps them in memory; it launches q and k apart; and it rounds products and sums as one.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ....support.tracing import constant, known
from ...layout import Layout
from ...rotation import Rotation
from ...spec import axis_steps
from ...tables import Phases, spec_of
from ..base import Angles, Pair, one_angle, result_dtype, tables_of
from ..inlined import FEW
from ..order import ORDERS, Order, format_of
from .autograd import new
from .kernel import INTERPRETED, MISSING, too_old, unsuited


def is_for(x: Tensor) -> bool:
    """Whether it is on a device of this operator."""
    return x.device.type == "cuda" or (INTERPRETED and x.is_cpu)


def why_not(q: Tensor, k: Tensor | None, angles: Angles) -> str:
    """Of tensors that a compiler traces, on a GPU."""
    if not known(q.numel() > FEW):
        return f"a compiler's own code is sooner done with up to {FEW:,} elements"
    if reason := MISSING or one_angle(angles) or unsuited(q, k, angles):
        return reason
    return "" if q.is_cpu else _too_old(q.device)


@constant
def _too_old(device: torch.device) -> str:
    return too_old(device)


def rotate(q: Tensor, k: Tensor | None, angles: Angles, order: Order) -> Pair:
    """q and k rotated, as one node; as two where their batches have different shapes."""
    if k is not None and order.batch_of(q) != order.batch_of(k):
        return rotate(q, None, angles, order)[0], rotate(k, None, angles, order)[0]
    if isinstance(angles, Rotation) or not angles.of_steps:
        angles = tables_of(angles)
        given: tuple[list[Tensor], str, int | None] = [angles.cos, angles.sin], "", None
    else:
        at = angles.positions[0] if len(angles.positions) == 1 else torch.stack(angles.positions)
        given = [at], angles.spec.key, angles.seq_len
        hold_steps(angles.spec.key, angles.seq_len, q.device)
    qk = [q] if k is None else [q, k]
    y, *z = torch.ops.phasor.rotate_qk(qk, *given, described(angles), format_of(order), False, result_dtype(q, angles))
    return y, z[0] if z else None


_STEPS: dict[tuple[str, int | None, torch.device], Tensor] = {}


@constant
def hold_steps(key: str, seq_len: int | None, device: torch.device) -> None:
    """Form ``[axes, P]`` steps for a node while its code is made, and keep them for good.

    Formed at the first call of the node they could lie in the memory of a CUDA graph, which writes over what it does
    not know.
    """
    if (key, seq_len, device) in _STEPS or (device.type == "cuda" and not torch.cuda.is_available()):
        return
    with torch.inference_mode(False):
        steps = torch.tensor(axis_steps(spec_of(key), seq_len), dtype=torch.int64, device=device)
    if type(steps) is Tensor:  # not where someone compiles with fake tensors only
        _STEPS[key, seq_len, device] = steps


def described(angles: Angles) -> list[int]:
    """The layout, and whether every head has tables of its own, as an operator takes them."""
    layout = angles.layout
    return [
        layout.head_dim, layout.rotary_dim, int(layout.trailing), int(layout.interleaved), layout.blocks,
        int(layout.permuted), int(angles.per_head),
    ]  # fmt: skip


@lru_cache(maxsize=64)
def layout_of(head_dim: int, rotary_dim: int, trailing: int, interleaved: int, blocks: int, permuted: int) -> Layout:
    """The reverse of `described`."""
    return Layout(
        head_dim=head_dim, rotary_dim=rotary_dim, trailing=bool(trailing), interleaved=bool(interleaved),
        blocks=blocks, permuted=bool(permuted),
    )  # fmt: skip


def rotation_of(tables: Sequence[Tensor], about: list[int]) -> Rotation:
    """By cos and sin and what is `described`."""
    return Rotation(cos=tables[0], sin=tables[1], layout=layout_of(*about[:6]), per_head=bool(about[6]))


def _rotate(
    qk: Sequence[Tensor], angles: Sequence[Tensor], spec: str, seq_len: int | None, about: list[int],
    tensor_format: str, transposed: bool, dtype: torch.dtype,
) -> list[Tensor]:  # fmt: skip
    at = Phases(spec_of(spec), angles[0], seq_len) if spec else rotation_of(angles, about)
    q, k, steps = qk[0], qk[1] if len(qk) == 2 else None, _STEPS.get((spec, seq_len, qk[0].device))
    return [y for y in new(q, k, at, ORDERS[tensor_format], transposed, dtype, steps) if y is not None]


def _shapes(
    qk: Sequence[Tensor], angles: Any, spec: str, seq_len: Any, about: Any, tensor_format: str, transposed: bool,
    dtype: torch.dtype,
) -> list[Tensor]:  # fmt: skip
    return [torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format) for x in qk]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    qk, angles, *ctx.rest, ctx.transposed, _ = inputs
    ctx.dtype = qk[0].dtype
    ctx.save_for_backward(*angles)


def _back(ctx: Any, grads: Sequence[Tensor | None]) -> Any:
    given, angles = [g for g in grads if g is not None], list(ctx.saved_tensors)
    back = iter(torch.ops.phasor.rotate_qk(given, angles, *ctx.rest, not ctx.transposed, ctx.dtype) if given else [])
    of_qk = [None if g is None else next(back) for g in grads]
    return of_qk, [None] * len(angles), None, None, None, None, None, None


LIBRARY = torch.library.Library("phasor", "FRAGMENT")
LIBRARY.define(
    "rotate_qk(Tensor[] qk, Tensor[] angles, str spec, int? seq_len, int[] about, str tensor_format, bool transposed, "
    "ScalarType dtype) -> Tensor[]"
)
for device in ("CUDA", "CPU"):  # on a CPU Triton's interpreter runs it
    LIBRARY.impl("rotate_qk", _rotate, device)
torch.library.register_fake("phasor::rotate_qk", _shapes, lib=LIBRARY)
torch.library.register_autograd("phasor::rotate_qk", _back, setup_context=_keep, lib=LIBRARY)
