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
from .arguments import CacheHeads, CacheSizes, HeadLayout, Heads, NormKind, Sizes, Strides, Weights

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
def about(layout: Layout, tile: int) -> tuple[HeadLayout, int]:
    """Where pairs lie, and how many rows make a tile of it."""
    rest = layout.head_dim - layout.rotary_dim
    wide, least = _power_of_two(layout.pairs), _power_of_two(rest / MOST_PARTS)  # Triton's ranges are powers of two
    twins = layout.interleaved
    part = max(least, wide * (1 + twins))
    lies = HeadLayout(
        layout.pairs, wide, layout.blocks, twins, twins != layout.permuted, layout.turning.start,
        rest, part, cdiv(rest, part), layout.passing.start,
    )  # fmt: skip
    return lies, max(1, tile // max(wide, least))


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
    """The largest programs of which there are enough; of one row and few heads, if there are never.

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
    # On an H100, by 17 such sizes for 1 to 1024 rows: within a tenth of the best everywhere (docs/log.md).
    for heads, rows, warps in ((HEADS, tile_rows, 4), (HEADS, 1, 1), (HEADS // 2, 1, 1)):
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


def in_units(every: Sequence[Sequence[int]]) -> tuple[list[Strides], int]:
    """Strides of some tensors, all but those of channels in a unit that divides them.

    The unit, a power of two up to 16, is a constant of the code: so it can move whole vectors, whatever the strides.
    """
    unit = math.gcd(16, *(stride for of in every for stride in of[:3]))
    return [Strides(batch // unit, head // unit, token // unit, step) for batch, head, token, step in every], unit


class Launch:
    """A launch of `rotate.rotate_heads` with all but the addresses in place, for tensors of the same sizes.

    As Triton's own launch of compiled code, but that it describes the launch to hooks only where there are any.
    """

    __slots__ = ("begin", "device", "driver", "hooked", "hooks", "rest", "run", "vectors")

    def __init__(self, compiled: Any, programs: Programs, rest: tuple[Any, ...], vectors: list[int]) -> None:
        self.driver, self.hooks = triton.runtime.driver.active, triton.knobs.runtime
        self.hooked, self.run = compiled[(*programs.grid, 1)], partial(compiled.run, *programs.grid, 1)
        self.begin = compiled.function, compiled.packed_metadata, None, None, None
        self.rest, self.vectors = rest, vectors
        self.device = self.driver.get_current_device()

    def is_here(self) -> bool:
        """Whether its device is the current one, whose stream it takes."""
        return bool(self.driver.get_current_device() == self.device)

    def __call__(self, *addresses: int | None) -> bool:
        """Of `Heads`, positions, `Tables` and `Weights`, one after the other.

        False, and nothing is done, if an address is none or at no multiple of 16 bytes, as vectors are.
        """
        if 0 in addresses:
            return False
        together = 0  # all addresses by `or`: its low four bits are 0 only if those of each are
        for i in self.vectors:
            together |= addresses[i]  # type: ignore[operator]  # those that are there
        if together & 15:
            return False
        stream = self.driver.get_current_stream(self.device)
        enter, leave = self.hooks.launch_enter_hook, self.hooks.launch_exit_hook
        q, k, y, z, at, steps, cos, sin, of_q, of_k = addresses
        groups = (q, k, y, z), at, (steps, cos, sin), (of_q, of_k)
        if getattr(enter, "calls", enter) or getattr(
            leave, "calls", leave
        ):  # chains, or, of older Tritons, one or none
            self.hooked(*groups, *self.rest, stream=stream)
        else:
            self.run(stream, *self.begin, *groups, *self.rest)
        return True


def launched(kernel: Any, programs: Programs, arguments: tuple[Any, ...]) -> Any:
    """Launches a kernel on the device of its first tensor; compiles it if need be.

    Returns the compiled code; nothing where the interpreter ran it, or a hook into compilation would not have it.
    """
    how = {"num_warps": programs.warps, "enable_fp_fusion": False}
    with on_device_of(arguments[0][0]):
        if not isinstance(kernel, triton.JITFunction):
            kernel[programs.grid](*arguments, **how)
            return None
        compiled = kernel.run(*map(_unseen, arguments), grid=programs.grid, warmup=True, **how)
        if compiled is not None:
            compiled[(*programs.grid, 1)](*arguments)
        return compiled


def kept(compiled: Any, programs: Programs, arguments: tuple[Any, ...]) -> Launch | None:
    """The launch of these arguments, for others of their sizes; None of code that moves no vectors."""
    heads, _, tables, weights, *rest = arguments
    pointers = *heads, None, *tables, *weights  # positions are moved one by one
    vectors = [i for i, x in enumerate(pointers) if x is not None]
    if any(pointers[i].data_ptr() & 15 for i in vectors):
        return None
    with on_device_of(heads[0]):
        return Launch(compiled, programs, _plain(tuple(rest)), vectors)


def _plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the names, by which a launch takes half as long again: Triton's launcher copies a tuple that has them."""
    return tuple(_plain(value) if isinstance(value, tuple) else value for value in values)


def _unseen(argument: Any) -> Any:
    """Numbers in place of sizes and strides, for Triton to compile with.

    In a tuple it looks at each, and would make code anew for 1 and for multiples of 16, between which serving changes.
    """
    if isinstance(argument, (Sizes, CacheSizes, Strides)):
        return type(argument)(*(2 if -(2**31) <= n < 2**31 else 2**31 + 2 for n in argument))
    if isinstance(argument, (Heads, CacheHeads)):
        return type(argument)(*map(_unseen, argument))
    return argument


def of_norm(norm: Norm | None) -> tuple[Weights, float, NormKind]:
    """Weights as a kernel reads them, eps, and which norm it is."""
    if norm is None:
        return Weights(None, None), 0.0, NormKind(0, False, False)
    of_q, of_k = (None if w is None else w.resolve_neg().contiguous() for w in norm[:2])
    if of_q is not None and of_k is not None and of_q.dtype != of_k.dtype:  # one pointer is chosen of two
        of_q, of_k = of_q.float(), of_k.float()
    kind = NormKind(ROUNDINGS.index(norm.rounding) + 1, of_q is not None, norm.unit_offset)
    return Weights(of_q, of_q if of_k is None else of_k), norm.eps, kind


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
    if 0 in shape[:-3]:  # whose strides say nothing, and where nothing is read
        return 0, 0
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
