"""Where the programs run: sizes and strides of q and k, and the grid, as numbers."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import cdiv

from ...layout import Layout
from ..base import PLAIN
from ..norm import ROUNDINGS, Norm
from ..order import Order

TILE = 2048 if torch.version.hip else 1024  # pairs of one head that a program rotates at once: eight for each thread
HEADS = 8  # of q or of k that share the cosines of a program, at most
ENOUGH = 2 * 132  # programs for the processors of an H100 or H200, where no GPU is here
IN_FLIGHT = 128  # values that a thread has loaded before it stores any
MOST_PARTS = 8  # as wide as the pairs, of the channels that pass


class Angles(NamedTuple):
    """What a launch needs to know of positions and steps, or of tables."""

    tensors: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]  # positions, steps, cos, sin
    strides: tuple[int, int, int, int]  # of batch, head and token; and of pairs, or, of positions, of axes
    batches: int
    axes: int = 0  # none: tables
    per_head: bool = False
    factor: float = 1.0


def of_positions(positions: tuple[Tensor, ...], steps: Tensor, factor: float) -> Angles:
    """Positions of each axis, views of one tensor, ``[(B,) S]``; steps ``[axes, P]``."""
    first = positions[0]
    apart = int(positions[1].storage_offset() - first.storage_offset()) if len(positions) > 1 else 0
    batched = first.ndim == 2 and first.shape[0] != 1
    strides = (first.stride(0) if batched else 0, 0, first.stride(-1), apart)
    return Angles((first, steps, None, None), strides, first.shape[0] if batched else 1, len(positions), factor=factor)


def of_tables(cos: Tensor, sin: Tensor, per_head: bool) -> Angles:
    """Tables ``[(B,) (H,) S, P]``."""
    cos, sin = cos.resolve_neg(), sin.resolve_neg()
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    batched = cos.ndim == 3 + per_head and cos.shape[0] != 1
    strides = (cos.stride(0) if batched else 0, cos.stride(-3) if per_head else 0, cos.stride(-2), cos.stride(-1))
    return Angles((None, None, cos, sin), strides, cos.shape[0] if batched else 1, per_head=per_head)


@lru_cache(maxsize=512)
def about(layout: Layout, tile: int) -> dict[str, Any]:
    """The constants of a layout, and how many rows make a tile of it."""
    rest = layout.head_dim - layout.rotary_dim
    wide, least = _power_of_two(layout.pairs), _power_of_two(rest / MOST_PARTS)  # Triton's ranges are powers of two
    return {
        "PAIRS": layout.pairs, "WIDE": wide, "BLOCKS": layout.blocks,
        "READ_TWINS": layout.interleaved, "WRITE_TWINS": layout.interleaved != layout.permuted,
        "FIRST": layout.turning.start, "REST": rest, "REST_FIRST": layout.passing.start,
        "PART": max(least, wide * (1 + layout.interleaved)), "ROWS": max(1, tile // max(wide, least)),
    }  # fmt: skip


class Programs(NamedTuple):
    """How the work is cut: a program has ``heads`` heads of q or of k, in ``rows`` rows, for ``warps`` warps."""

    tiles: int
    q_groups: int
    k_groups: int
    heads: int
    rows: int
    warps: int

    @property
    def grid(self) -> tuple[int, int]:
        return self.tiles, self.q_groups + self.k_groups


def programs_of(rows: int, of_q: int, of_k: int, tile_rows: int, enough: int) -> Programs:
    """The largest programs of which there are enough; of one row and one head, if there are never.

    Three sizes, and no more: each is code of its own, which is compiled when it is first used.
    """
    for cut in _sizes(of_q, of_k, tile_rows):
        cut = cut._replace(tiles=cdiv(rows, cut.rows))
        if math.prod(cut.grid) >= enough:
            break
    return cut


def least_rows(of_q: int, of_k: int, tile_rows: int, enough: int) -> list[int]:
    """The fewest rows with programs of each size, the largest first."""
    sizes = _sizes(of_q, of_k, tile_rows)
    # Enough programs are `cdiv(enough, groups)` tiles; the last of them begins one row behind all that fill the others.
    return [cut.rows * (cdiv(enough, sum(cut[1:3])) - 1) + 1 for cut in sizes[:2]] + [1]


def _sizes(of_q: int, of_k: int, tile_rows: int) -> list[Programs]:
    most, sizes = max(1, of_q, of_k), []
    for heads, rows, warps in ((HEADS, tile_rows, 4), (1, tile_rows, 4), (1, 1, 1)):
        heads = cdiv(most, cdiv(most, heads))  # groups of one size
        sizes.append(Programs(0, cdiv(of_q, heads), cdiv(of_k, heads), heads, rows, warps))
    return sizes


def enough_for(device: torch.device) -> int:
    """Programs that keep a GPU busy: two for each of its processors."""
    return _enough(device) if device.type == "cuda" and torch.cuda.is_available() else ENOUGH


@lru_cache(maxsize=64)
def _enough(device: torch.device) -> int:
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count


def ahead(layout: Layout, cut: Programs) -> int:
    """How many heads a program loads before it stores the first: as many as registers hold."""
    # Values of one head for each thread; a warp has 32, and the pairs are filled up to a power of two.
    each = cut.rows * max(layout.head_dim, 2 * _power_of_two(layout.pairs)) // (32 * cut.warps)
    return max(1, min(cut.heads, IN_FLIGHT // max(1, each)))


def in_units(strides: Sequence[int]) -> tuple[list[int], int]:
    """Strides of batch, head, token and channel of some tensors: all but those of channels in a unit that divides them.

    The unit, a power of two up to 16, is a constant of the code: so it can move whole vectors, whatever the strides.
    """
    unit = math.gcd(16, *(s for i, s in enumerate(strides) if i % 4 < 3))
    return [s // unit if i % 4 < 3 else s for i, s in enumerate(strides)], unit


class Launch:
    """What is launched, once it is compiled: called with addresses, for tensors of the same sizes and alignment.

    As Triton's own launch of compiled code, but that it describes the launch to hooks only where there are any.
    """

    __slots__ = ("begin", "device", "driver", "hooked", "hooks", "rest", "run", "vectors")

    def __init__(self, compiled: Any, cut: Programs, rest: tuple[Any, ...], vectors: list[int]) -> None:
        self.driver, self.hooks = triton.runtime.driver.active, triton.knobs.runtime
        self.hooked, self.run = compiled[(*cut.grid, 1)], partial(compiled.run, *cut.grid, 1)
        self.begin = compiled.function, compiled.packed_metadata, None, None, None
        self.rest, self.vectors = rest, vectors
        self.device = self.driver.get_current_device()

    def is_here(self) -> bool:
        """Whether its device is the current one, whose stream it takes."""
        return bool(self.driver.get_current_device() == self.device)

    def __call__(self, *addresses: int | None) -> bool:
        """False, and nothing is done, if an address is none or at no multiple of 16 bytes, as vectors are."""
        if 0 in addresses:
            return False
        together = 0  # all addresses by `or`: its low four bits are 0 only if those of each are
        for i in self.vectors:
            together |= addresses[i]  # type: ignore[operator]  # those that are there
        if together & 15:
            return False
        stream = self.driver.get_current_stream(self.device)
        enter, leave = self.hooks.launch_enter_hook, self.hooks.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(
            leave, "calls", leave
        ):  # chains, or, of older Tritons, one or none
            self.hooked(*addresses, *self.rest, stream=stream)
        else:
            self.run(stream, *self.begin, *addresses, *self.rest)
        return True


def launched(
    kernel: Any, cut: Programs, tensors: tuple[Tensor | None, ...], numbers: tuple[Any, ...], constants: dict[str, Any]
) -> Launch | None:
    """Launches a kernel with tensors, numbers and constants, in the order of its arguments; compiles it if need be.

    Returns the same launch with all but the addresses in place; not where the interpreter ran it.
    """
    first = tensors[0]
    assert first is not None
    with on_device_of(first):
        compiled = kernel[cut.grid](
            *tensors, *numbers, **constants, num_warps=cut.warps, enable_fp_fusion=False
        )  # fmt: skip
        if compiled is None:
            return None
        names = kernel.arg_names[len(tensors) + len(numbers) :]
        params = zip(kernel.params, tensors, strict=False)
        vectors = [i for i, (p, x) in enumerate(params) if x is not None and not p.do_not_specialize]
        if any(tensors[i].data_ptr() & 15 for i in vectors):  # type: ignore[union-attr]
            return None  # code that moves no vectors, for others of these sizes
        return Launch(compiled, cut, (*numbers, *(constants[name] for name in names)), vectors)


def of_norm(norm: Norm | None) -> tuple[tuple[Tensor | None, Tensor | None, float], dict[str, Any]]:
    """Weights and eps; and constants: how it rounds, whether there are weights, and whether one is added to them."""
    if norm is None:
        return (None, None, 0.0), {"NORM": 0, "WEIGHTED": False, "OFFSET": False}
    of_q, of_k = (None if w is None else w.resolve_neg().contiguous() for w in norm[:2])
    if of_q is not None and of_k is not None and of_q.dtype != of_k.dtype:  # one pointer is chosen of two
        of_q, of_k = of_q.float(), of_k.float()
    rounded = ROUNDINGS.index(norm.rounding) + 1
    about_it = {"NORM": rounded, "WEIGHTED": of_q is not None, "OFFSET": norm.unit_offset}
    return (of_q, of_q if of_k is None else of_k, norm.eps), about_it


def axes_of(x: Tensor, order: Order) -> tuple[int, int, int, int, int, int, int]:
    """Strides of batch, head, token and channel; sizes of batch, heads and tokens. The batch must be one axis."""
    shape, strides = x.shape, x.stride()
    per, batch = batch_of(shape, strides, order)
    assert per is not None
    return per, strides[order.heads], strides[order.tokens], strides[-1], batch, shape[order.heads], shape[order.tokens]


def batch_of(shape: Any, strides: Any, order: Order) -> tuple[int | None, int]:
    """The stride of all batch axes taken as one, or None if no stride is; and its size."""
    if order.batch is not None:
        return strides[order.batch], shape[order.batch]
    stride, size = 0, 1
    for n, step in zip(reversed(shape[:-3]), reversed(strides[:-3]), strict=True):
        if n != 1 and size == 1:
            stride = step
        elif n != 1 and step != stride * size:
            return None, size
        size *= n
    return stride, size


def has_one_batch(x: Tensor, order: Order) -> bool:
    """Whether one stride describes all its batch axes."""
    return batch_of(x.shape, x.stride(), order)[0] is not None


def takes_writes(x: Tensor, order: Order) -> bool:
    """Whether a kernel can write to it as it lies."""
    return type(x) in PLAIN and not x.is_neg() and has_one_batch(x, order)


def in_memory(x: Tensor, order: Order) -> Tensor:
    """As a kernel can read it: a copy of what has a lazy sign, or no memory, or a batch that no stride describes."""
    x = x.clone() if x._is_zerotensor() else x.resolve_neg()
    return x if has_one_batch(x, order) else x.contiguous()


def on_device_of(q: Tensor) -> AbstractContextManager[Any]:
    return torch.cuda.device_of(q) if q.is_cuda else nullcontext()


def _power_of_two(n: float) -> int:
    return 1 << max(0, math.ceil(n) - 1).bit_length()
