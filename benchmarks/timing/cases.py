"""The cases of phasor on a CPU: long sequences, whose time is that of memory, and decoding, whose time is calling."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from phasor import Rotation, apply_rotary_qk, rotate

from .measure import COPY, Calls, Case, Variant, at_most

WIDTH = 128
SHAPE = f"q [1, 32, 4096, {WIDTH}] and k [1, 8, 4096, {WIDTH}]"
TOKEN = f"one token, q [1, 32, 1, {WIDTH}] and k [1, 8, 1, {WIDTH}]"
POSITION = 4097  # of the one token
STEPS = 64  # positions that decoding takes one after the other


def prefill(variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    """q and k of `SHAPE`, and positions."""
    seq = 16 if variant.quick else 4096
    return *variant.pair(1, 32, 8, seq, WIDTH), torch.arange(seq)


def token(variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    """q and k of `TOKEN`, and its position."""
    return *variant.pair(1, 32, 8, 1, WIDTH), torch.tensor([POSITION])


def clones(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.clone(), k.clone()


def copies(q: Tensor, k: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    """A call that copies q and k into tensors that exist."""
    y, z = clones(q, k)
    return lambda: (y.copy_(q), z.copy_(k))


def with_backward(call: Callable[[], Any], inputs: tuple[Tensor, Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    """Forward and backward, to the gradients of what goes in; a gradient lies in memory as its result does."""
    gradients = [torch.randn_like(y) for y in call()]
    return lambda: torch.autograd.grad(call(), inputs, gradients)


def _times_one(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q * 1.0, k * 1.0


def _prefill(variant: Variant) -> Calls:
    q, k, positions = prefill(variant)
    call = partial(rotate, q, k, positions, variant.spec(WIDTH), kernel=variant.kernel)
    return {"phasor": call, "clone": partial(clones, q, k)}


def _prefill_out(variant: Variant, in_place: bool) -> Calls:
    q, k, positions = prefill(variant)
    out = clones(q, k)
    inputs = out if in_place else (q, k)
    call = partial(rotate, *inputs, positions, variant.spec(WIDTH), kernel=variant.kernel, out=out)
    return {"phasor": call, COPY: copies(q, k)}


def _prefill_rounded(variant: Variant) -> Calls:
    q, k, positions = prefill(variant)
    spec = variant.spec(WIDTH).replace(angles="float32", tables="activation")
    rotation = Rotation.at(spec, positions, dtype=variant.dtype)
    call = partial(apply_rotary_qk, q, k, rotation, kernel=variant.kernel, out=clones(q, k))
    return {"phasor": call, COPY: copies(q, k)}


def _training(variant: Variant) -> Calls:
    batch, heads, seq, width = (2, 2, 16, 64) if variant.quick else (4, 16, 1024, 64)
    return _gradients(variant, *variant.pair(batch, heads, heads, seq, width), torch.arange(seq))


def _gradients(variant: Variant, q: Tensor, k: Tensor, positions: Tensor) -> Calls:
    inputs = q.requires_grad_(), k.requires_grad_()
    call = partial(apply_rotary_qk, q, k, variant.rotation(q.shape[-1], positions), kernel=variant.kernel)
    return {"phasor": with_backward(call, inputs), "x * 1.0": with_backward(partial(_times_one, q, k), inputs)}


def _decoding(variant: Variant, q: Tensor, k: Tensor, positions: Iterator[Tensor]) -> Callable[[], Any]:
    """A call that rotates by the next positions: decoding has new ones at every step, which nothing may keep."""
    spec = variant.spec(WIDTH)
    return lambda: rotate(q, k, next(positions), spec, kernel=variant.kernel)


def _token(variant: Variant) -> Calls:
    q, k, position = token(variant)
    positions = cycle([position + n for n in range(STEPS)])
    return {"phasor": _decoding(variant, q, k, positions), "two clones": partial(clones, q, k)}


def _token_given(variant: Variant) -> Calls:
    q, k, position = token(variant)
    call = partial(apply_rotary_qk, q, k, variant.rotation(WIDTH, position), kernel=variant.kernel)
    return {"phasor": call, "two clones": partial(clones, q, k)}


def _token_training(variant: Variant) -> Calls:
    return _gradients(variant, *token(variant))


def _batch(variant: Variant) -> Calls:
    batch = 4 if variant.quick else 64
    q, k = variant.pair(batch, 32, 8, 1, WIDTH)
    first = (torch.arange(batch) * 61).unsqueeze(-1)
    positions = cycle([first + n for n in range(STEPS)])
    return {"phasor": _decoding(variant, q, k, positions), "clone": partial(clones, q, k)}


LARGE = (
    Case(
        "prefill", f"`rotate` from positions to new outputs, {SHAPE}, in units of a clone of both",
        _prefill, unit="clone", goals=at_most(0.75, 0.75, 0.85), large=True,
    ),
    Case(
        "given", "the same into outputs that exist (`out=`), in units of `copy_` of both",
        partial(_prefill_out, in_place=False), unit=COPY, goals=at_most(0.9), large=True,
    ),
    Case(
        "in-place", "the same in place (`out=(q, k)`), in units of `copy_` of both into other tensors",
        partial(_prefill_out, in_place=True), unit=COPY, goals=at_most(0.7, 0.85), large=True,
    ),
    Case(
        "rounded",
        "the same sizes by tables in bfloat16, every product rounded as most model code does, into outputs that exist, "
        "in units of `copy_` of both",
        _prefill_rounded, unit=COPY, goals=at_most(1.15), dtypes=("bfloat16",), large=True,
    ),
    Case(
        "training",
        "forward and backward of `apply_rotary_qk`, q and k [4, 16, 1024, 64], in units of forward and backward of "
        "`x * 1.0` on both",
        _training, unit="x * 1.0", goals=at_most(0.8, 0.9), large=True, gradient=True,
    ),
    Case(
        "threads",
        "`prefill` on two threads (or on more, if `--threads` says so), wall time, in units of a clone of both",
        _prefill, unit="clone", goals=at_most(0.9), large=True, threads=2,
    ),
)  # fmt: skip
SMALL = (
    Case(
        "token",
        f"`rotate` from the position, another one at every call, to new outputs, {TOKEN}, in units of a clone of both",
        _token, unit="two clones", goals=at_most(1.8), repeat=500,
    ),
    Case(
        "token-given",
        "`apply_rotary_qk` of the same by a rotation that exists, as in all layers of a model but the first, in units "
        "of a clone of both",
        _token_given, unit="two clones", goals=at_most(1.8), repeat=500,
    ),
    Case(
        "token-training", "forward and backward of that, in units of forward and backward of `x * 1.0` on both",
        _token_training, unit="x * 1.0", goals=at_most(2.0), gradient=True, repeat=100,
    ),
    Case(
        "batch",
        f"`rotate` for a batch of 64 decoded tokens, each at a position of its own, q [64, 32, 1, {WIDTH}] and "
        f"k [64, 8, 1, {WIDTH}], in units of a clone of both",
        _batch, unit="clone", goals=at_most(1.05, 1.3), repeat=50,
    ),
)  # fmt: skip
