"""The short way to a launch: a call of sizes that were launched before needs no checks, and no arguments packed anew.

A plan is kept for everything about a call but the addresses: sizes, strides, dtypes, devices, the layout, and what
is asked of the kernel. It is made where a call has gone the long way, behind all checks; so what the
checks have seen of it need not be seen again. What a plan cannot know is looked at in every call: gradients, lazy
signs, addresses, modes of torch, and what stands between an operation and its result.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ...layout import Layout
from ...rotation import Rotation
from ...spec import RotarySpec
from ..base import CHOSEN, PLAIN, Angles, Pair, tensors_of
from ..norm import Norm
from ..order import ORDERS, Order

_transforms, _traced = torch._C._are_functorch_transforms_active, torch._C._get_tracing_state
_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack

MOST = 4096  # plans; then all are made anew
OPEN = ["triton", "auto"] if CHOSEN in ("auto", "triton") else ["triton"]  # where the short way may be tried


class HeadsKey(NamedTuple):
    """What a plan must know of q, k and their results, and of a norm: for each thing, what a launch has in place.

    A field that is missing here would let a call run with the numbers of another one, which nothing checks anymore.
    """

    q_shape: torch.Size  # rows, tokens, heads; and that the width fits the layout
    q_strides: tuple[int, ...]  # which are in place as numbers
    q_dtype: torch.dtype  # for which the code is made
    q_device: int  # on which it was loaded
    k: tuple[Any, ...]  # the same of k, whose dtype is that of q; empty if there is none
    order: int  # which axes are the batch, the heads and the tokens: the `id` of one of `ORDERS`, which live on
    dtype: torch.dtype  # of the results
    results: Any  # None: new and contiguous; True: q and k themselves; else their strides
    transposed: bool  # whether the sign of the sines is turned
    norm: tuple[Any, ...]  # of each weight as of q; eps and what the norm does; empty if there is none


class TablesKey(NamedTuple):
    """The same of tables of cos and sin."""

    shape: torch.Size  # batches, heads and tokens, which fit those of q and k
    cos_strides: tuple[int, ...]
    sin_strides: tuple[int, ...]  # those of cos, or a launch would read copies, and is not kept
    dtype: torch.dtype
    device: int
    layout: int  # a number for each, by `number_of`
    per_head: bool
    promoted: bool  # which says the dtype of the results


class PositionsKey(NamedTuple):
    """The same of positions, all axes in one tensor, and a spec whose frequencies do not depend on a length."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: int
    spec: str  # its key: steps, layout, sense and factor follow from it


Key = tuple[HeadsKey, TablesKey | PositionsKey]
_new_tuple = tuple.__new__  # a third of a microsecond faster than by the name of the class


class LaunchPlan(NamedTuple):
    """A launch, the steps that it reads, and how many bytes lie from the first to the last of q, of k, of a table.

    ``contiguous``: of q and k, so that new results need not be told to be, which takes half a microsecond.
    """

    launch: Any  # of launch.py, which imports Triton
    steps: Tensor | None
    bytes: tuple[int, int, int]
    contiguous: tuple[bool, bool]


PLANS: dict[Key, LaunchPlan] = {}
_NUMBERS: dict[Layout, int] = {}
_KNOWN: dict[int, tuple[Layout, int]] = {}
_HELD: dict[int, Tensor] = {}  # steps, for good: a CUDA graph that captures a launch knows only their address


def is_open(kernel: str) -> bool:
    """Whether the short way may be tried where ``kernel`` is asked for."""
    return not is_compiling() and bool(PLANS) and kernel in OPEN


def only_by_name() -> None:
    """From now on ``"auto"`` may choose a kernel that somebody has registered."""
    OPEN[:] = ["triton"]


def keep(key: Key, launch: Any, q: Tensor, k: Tensor | None, angles: Angles, steps: Tensor | None) -> None:
    """So that the next call of this key goes the short way."""
    if len(PLANS) >= MOST:
        PLANS.clear()
    if steps is not None:
        _HELD[steps.data_ptr()] = steps
    read = tensors_of(angles)[0]
    of_k = (0, False) if k is None else (extent(k), k.is_contiguous())
    together = extent(read) * len(tensors_of(angles))
    PLANS[key] = LaunchPlan(launch, steps, (extent(q), of_k[0], together), (q.is_contiguous(), of_k[1]))


def key_of(
    q: Tensor, k: Tensor | None, y: Tensor, z: Tensor | None, angles: Angles, order: Order, transposed: bool,
    norm: Norm | None,
) -> Key | None:  # fmt: skip
    """What a plan must know of a call; None of one for which none is kept."""
    results: Any = None
    if y is q and z is k:
        results = True
    elif not (y.is_contiguous() and (z is None or z.is_contiguous())):
        results = y.stride(), None if z is None else z.stride()
    of = of_heads(q, k, order, y.dtype, results, transposed, norm)
    if isinstance(angles, Rotation):
        return of, of_tables(angles)
    if angles.seq_len is not None:
        return None
    first, *others = angles.positions
    shape, stride = first.shape, first.stride()
    if others:
        shape = torch.Size((1 + len(others), *shape))
        stride = (int(others[0].storage_offset() - first.storage_offset()), *stride)
    return of, PositionsKey(shape, stride, first.dtype, first.get_device(), angles.spec.key)


def goes(
    plan: LaunchPlan, q: Tensor, k: Tensor | None, y: Tensor, z: Tensor | None, angles: Angles, norm: Norm | None
) -> bool:
    """Whether a plan was launched, for tensors that are checked."""
    read = tensors_of(angles)
    weights = () if norm is None else tuple(w for w in norm[:2] if w is not None)
    if not plan.launch.is_here() or any(x.is_neg() for x in (q, k, *read, *weights) if x is not None):
        return False
    return bool(
        plan.launch(
            q.data_ptr(), (q if k is None else k).data_ptr(), y.data_ptr(), (y if z is None else z).data_ptr(),
            *addresses(plan, [x.data_ptr() for x in read], isinstance(angles, Rotation), weights),
        )
    )  # fmt: skip


def addresses(plan: LaunchPlan, read: Sequence[int], tables: bool, weights: Sequence[Tensor]) -> tuple[int | None, ...]:
    """Of positions, steps, cos, sin and both weights."""
    of_q, of_k = (weights[0].data_ptr(), weights[-1].data_ptr()) if weights else (None, None)
    if tables:
        return None, None, read[0], read[1], of_q, of_k
    return read[0], None if plan.steps is None else plan.steps.data_ptr(), None, None, of_q, of_k


def extent(x: Tensor) -> int:
    """From its first element to the end of its last, in bytes."""
    return (sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) + 1) * x.itemsize


def number_of(layout: Layout) -> int:
    """Equal ones have one number; to look at a layout field by field would take longer than all the rest of a key."""
    known = _KNOWN.get(id(layout))
    if known is not None:
        return known[1]  # it is held, so no other has its id
    if len(_KNOWN) >= MOST:
        _KNOWN.clear()
    number = _NUMBERS.setdefault(layout, len(_NUMBERS))
    _KNOWN[id(layout)] = layout, number
    return number


def of_heads(
    q: Tensor,
    k: Tensor | None,
    order: Order | None,
    dtype: torch.dtype,
    results: Any,
    transposed: bool,
    norm: Norm | None,
) -> HeadsKey:
    of_k = () if k is None else (k.shape, k.stride(), k.get_device())
    of_norm = () if norm is None else (*(_of_weight(w) for w in norm[:2]), *norm[2:])
    return _new_tuple(
        HeadsKey, (q.shape, q.stride(), q.dtype, q.get_device(), of_k, id(order), dtype, results, transposed, of_norm)
    )


def of_tables(rotation: Rotation) -> TablesKey:
    cos = rotation.cos
    of_cos = cos.shape, cos.stride(), rotation.sin.stride(), cos.dtype, cos.get_device()
    return _new_tuple(TablesKey, (*of_cos, number_of(rotation.layout), rotation.per_head, rotation.promoted))


def of_positions(positions: Tensor, key: str) -> PositionsKey:
    of = positions.shape, positions.stride(), positions.dtype, positions.get_device(), key
    return _new_tuple(PositionsKey, of)


def _of_weight(weight: Tensor | None) -> Any:
    return None if weight is None else (weight.shape, weight.stride(), weight.dtype, weight.get_device())


def apply(
    q: Tensor, k: Tensor | None, rotation: Rotation, tensor_format: str, out: Any, norm: Norm | None = None
) -> Pair | None:
    """The short way by tables of cos and sin: the rotated pair, or None where the long way must look."""
    if type(rotation) is not Rotation:
        return None
    cos, sin = rotation.cos, rotation.sin
    weights = () if norm is None else [w for w in norm[:2] if w is not None]
    in_place = _is_in_place(q, k, out)
    given = [q, cos, sin, *weights] if k is None else [q, k, cos, sin, *weights]
    if in_place is False or (in_place and norm is not None) or _must_be_seen(given):
        return None
    order = ORDERS.get(tensor_format)
    plan = PLANS.get((of_heads(q, k, order, q.dtype, in_place, False, norm), of_tables(rotation)))
    if plan is None:
        return None
    at = addresses(plan, (cos.data_ptr(), sin.data_ptr()), True, weights)
    return _launched(plan, q, k, at, in_place)


def rotate(
    q: Tensor, k: Tensor | None, positions: Tensor, spec: RotarySpec, tensor_format: str, out: Any
) -> Pair | None:
    """The short way for phases."""
    if type(spec) is not RotarySpec:
        return None
    in_place = _is_in_place(q, k, out)
    if in_place is False or _must_be_seen([q, positions] if k is None else [q, k, positions]):
        return None
    order = ORDERS.get(tensor_format)
    plan = PLANS.get((of_heads(q, k, order, q.dtype, in_place, False, None), of_positions(positions, spec.key)))
    if plan is None:
        return None
    return _launched(plan, q, k, addresses(plan, (positions.data_ptr(),), False, ()), in_place)


def _must_be_seen(given: Sequence[Any]) -> bool:
    """Whether something stands between a call and its result, or these are no plain tensors that keep no gradient."""
    if _transforms() or forward_ad._current_level >= 0 or _modes() or _function_modes() or _traced():
        return True
    learning = torch.is_grad_enabled()
    for x in given:  # noqa: SIM110  # a generator would take as long again
        if type(x) not in PLAIN or x.is_neg() or (learning and x.requires_grad):
            return True
    return False


def _is_in_place(q: Tensor, k: Tensor | None, out: Any) -> bool | None:
    """None for new results, True where they are q and k themselves, False for all others."""
    if out is None:
        return None
    return (out[0] is q and out[1] is k) if type(out) is tuple and len(out) == 2 else (out is q and k is None)


def _launched(
    plan: LaunchPlan, q: Tensor, k: Tensor | None, at: tuple[int | None, ...], in_place: bool | None
) -> Pair | None:
    launch = plan.launch
    if not launch.is_here():
        return None
    of_q = q.data_ptr()
    of_k = of_q if k is None else k.data_ptr()
    changed = []
    if in_place:
        changed = [x for x in (q, k) if x is not None and not x.is_inference()]
        if not _are_apart(plan, of_q, None if k is None else of_k, at) or (
            len(changed) < 1 + (k is not None) and not torch.is_inference_mode_enabled()
        ):
            return None
        y, z, of_y, of_z = q, k, of_q, of_k
    else:
        y = _new(q, plan.contiguous[0])
        of_y = of_z = y.data_ptr()
        z = None
        if k is not None:
            z = _new(k, plan.contiguous[1])
            of_z = z.data_ptr()
    if not launch(of_q, of_k, of_y, of_z, *at):
        return None
    if changed:
        torch.autograd.graph.increment_version(changed)
    return y, z


def _new(x: Tensor, is_contiguous: bool) -> Tensor:
    return torch.empty_like(x) if is_contiguous else torch.empty_like(x, memory_format=torch.contiguous_format)


def _are_apart(plan: LaunchPlan, of_q: int, of_k: int | None, at: tuple[int | None, ...]) -> bool:
    """Whether q and k, which are written, share no stretch of memory with each other and with what is read."""
    *written, of_table = plan.bytes
    stretches = [(of_q, written[0])] + ([] if of_k is None else [(of_k, written[1])])
    stretches += [(x, of_table) for x in (at[0], at[2], at[3]) if x is not None]
    return not any(
        a < b + size_b and b < a + size_a
        for i, (a, size_a) in enumerate(stretches[: 1 + (of_k is not None)])
        for b, size_b in stretches[i + 1 :]
    )
