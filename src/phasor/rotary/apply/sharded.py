"""q and k that are DTensors: each rank rotates its own part by its own part of the angles. Nothing is sent."""

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..rotation import Rotation
from .formats import order_of

Local = Callable[..., Tensor]  # of the part that is here, its angles, and num_heads= and out= of them


def is_sharded(x: Any) -> bool:
    """Whether ``x`` is a DTensor; asked of every call that the short way refuses, so it imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def on_shards(
    name: str,
    x: Any,
    angles: Any,
    tensor_format: str,
    num_heads: int | None,
    out: Any,
    rotated: Local,
    several: bool = False,
) -> Any:
    """``rotated`` on the part of ``x`` that is here, into that of ``out``; a DTensor placed as ``x`` is.

    ``angles``: a `Rotation`, or positions ``[(axes,) (batch,) seq]``: those of the whole tensor, plain or DTensors.
    ``several``: the positions have several axes. Raises ``ValueError`` for channels that are sharded, and for an
    ``out`` that is placed otherwise.
    """
    from torch.distributed.tensor import DTensor

    axes = _Axes(name, x, tensor_format, num_heads)
    if out is not None:
        if not is_sharded(out) or out.placements != x.placements or out.device_mesh != x.device_mesh:
            got = out.placements if is_sharded(out) else type(out).__name__
            raise ValueError(f"out must be a DTensor placed as {name} is, {x.placements}, got {got}")
        rotated(x.to_local(), _part(angles, axes, several), num_heads=axes.heads_here, out=out.to_local())
        return out
    mine = rotated(x.to_local(), _part(angles, axes, several), num_heads=axes.heads_here, out=None)
    return DTensor.from_local(mine, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=_stride(x))


def pair_on_shards(
    q: Any, k: Any, angles: tuple[Any, Any], tensor_format: str, num_heads: int | None, width: int, out: Any,
    rotated: tuple[Local, Local], several: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`on_shards` for q and k, each by itself. ``width``: that of a head."""
    y, z = out or (None, None)
    y = on_shards("q", q, angles[0], tensor_format, num_heads, y, rotated[0], several)
    if k is not None:
        of_k = None if num_heads is None else k.shape[-1] // width
        z = on_shards("k", k, angles[1], tensor_format, of_k, z, rotated[1], several)
    return y, z


def weight_on_shards(weight: Any, x: Any) -> Any:
    """A norm's weight for the part of ``x`` that is here; its gradient is summed over ranks with other parts."""
    if not is_sharded(weight):
        return weight
    from torch.distributed.tensor import Partial, Replicate

    whole = weight.redistribute(placements=[Replicate()] * x.device_mesh.ndim)
    return whole.to_local(grad_placements=[Partial() if p.is_shard() else Replicate() for p in x.placements])


class _Axes:
    """Which axes of a DTensor are cut, and which part of each is here: ``[start, length]``, None for a whole one."""

    def __init__(self, name: str, x: Any, tensor_format: str, num_heads: int | None) -> None:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        flat, order = num_heads is not None, order_of(tensor_format)
        rank = x.ndim
        self.mesh, self.placements = x.device_mesh, x.placements
        self.tokens = rank + order.tokens + flat
        self.heads = rank - 1 if flat else rank + order.heads
        batch = {self.tokens, self.heads, rank - 1} ^ set(range(rank))
        self.batch = max(batch, default=-1) if order.batch is None else rank + order.batch + flat
        for placement in x.placements:
            if placement.is_shard(rank - 1) and not flat:
                raise ValueError(
                    f"{name} must not be sharded along its channels, got {placement}: the two members of a pair may "
                    "lie on two ranks; shard heads, tokens or the batch"
                )
        sizes, starts = compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)
        cut = {p.dim % rank for p in x.placements if p.is_shard()}
        self.range = {axis: (starts[axis], sizes[axis]) for axis in cut}
        self.heads_here = num_heads
        if flat and self.heads in self.range:
            self._whole_heads(name, x, num_heads)  # type: ignore[arg-type]

    def _whole_heads(self, name: str, x: Any, num_heads: int) -> None:
        width = x.shape[-1] // num_heads
        start, length = self.range[self.heads]
        if start % width or length % width:
            raise ValueError(
                f"{name} must be sharded between heads of {width} channels, got {start} to {start + length} here"
            )
        self.heads_here = length // width
        self.range[self.heads] = (start // width, length // width)


def _part(angles: Any, axes: _Axes, several: bool) -> Any:
    if isinstance(angles, Rotation):
        batch = angles.cos.ndim == 3 + angles.per_head
        places = {axes.tokens: -2}
        if angles.per_head:
            places[axes.heads] = -3
        if batch and angles.cos.shape[0] != 1:
            places[axes.batch] = 0
        return angles._mapped(lambda table: _cut(table, places, axes))
    places = {axes.tokens: -1}
    if angles.ndim > 1 + several and angles.shape[-2] != 1:
        places[axes.batch] = -2
    return _cut(angles, places, axes)


def _cut(table: Any, places: dict[int, int], axes: _Axes) -> Tensor:
    """The part that is here; ``places``: axis of x -> axis of the table."""
    if is_sharded(table):
        from torch.distributed.tensor import Replicate, Shard

        wanted = [
            Shard(places[p.dim] % table.ndim) if p.is_shard() and p.dim in places else Replicate()
            for p in axes.placements
        ]
        local: Tensor = table.redistribute(placements=wanted).to_local()
        return local
    for axis, place in places.items():
        if axis in axes.range and table.shape[place] != 1:
            table = table.narrow(place, *axes.range[axis])
    return table


def _stride(x: Any) -> tuple[int, ...]:
    """Contiguous, as every result is."""
    strides = [1]
    for size in reversed(x.shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))
