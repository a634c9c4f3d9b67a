"""Long sequences: the time is that of memory, so the units are what moves the same bytes."""

from functools import partial

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary_qk, rotate
from ...rotary.rotation import Rotation
from .case import Case, Setting, at_most
from .race import Calls

WIDTH = 128
SHAPE = f"q [1, 32, 4096, {WIDTH}] and k [1, 8, 4096, {WIDTH}]"


def prefill(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """q and k of `SHAPE`, and positions."""
    seq = 16 if setting.quick else 4096
    return *setting.pair(1, 32, 8, seq, WIDTH), torch.arange(seq)


def clones(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.clone(), k.clone()


def copies(q: Tensor, k: Tensor) -> partial[tuple[Tensor, Tensor]]:
    """A call that copies q and k into tensors that exist."""
    y, z = clones(q, k)
    return partial(_copied, y, q, z, k)


def _copied(y: Tensor, q: Tensor, z: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return y.copy_(q), z.copy_(k)


def forwards_and_back(turn: partial, q: Tensor, k: Tensor) -> partial:
    """A call that runs ``turn``, and the backward pass of what it returns, to the gradients of q and k."""
    grads = torch.randn(q.shape).to(q.dtype), torch.randn(k.shape).to(k.dtype)
    return partial(_step, turn, (q, k), grads)


def _step(turn: partial, inputs: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(turn(), inputs, grads)


def times_one(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q * 1.0, k * 1.0


def _prefill(setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    turn = partial(rotate, q, k, positions, setting.spec(WIDTH), kernel=setting.kernel)
    return {"phasor": turn, "clone": partial(clones, q, k)}


def _given(setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    turn = partial(rotate, q, k, positions, setting.spec(WIDTH), kernel=setting.kernel, out=clones(q, k))
    return {"phasor": turn, "copy_": copies(q, k)}


def _in_place(setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    here = clones(q, k)
    turn = partial(rotate, *here, positions, setting.spec(WIDTH), kernel=setting.kernel, out=here)
    return {"phasor": turn, "copy_": copies(q, k)}


def _rounded(setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    spec = setting.spec(WIDTH).replace(angles="float32", tables="activation")
    rotation = Rotation.at(spec, positions, dtype=setting.dtype)
    turn = partial(apply_rotary_qk, q, k, rotation, kernel=setting.kernel, out=clones(q, k))
    return {"phasor": turn, "copy_": copies(q, k)}


def _training(setting: Setting) -> Calls:
    batch, heads, seq, width = (2, 2, 16, 64) if setting.quick else (4, 16, 1024, 64)
    q, k = (x.requires_grad_() for x in setting.pair(batch, heads, heads, seq, width))
    rotation = setting.rotation(width, torch.arange(seq))
    turn = partial(apply_rotary_qk, q, k, rotation, kernel=setting.kernel)
    return {
        "phasor": forwards_and_back(turn, q, k),
        "x * 1.0": forwards_and_back(partial(times_one, q, k), q, k),
    }


LARGE = (
    Case(
        "prefill",
        f"`rotate` from positions to new outputs, {SHAPE}, in units of a clone of both",
        _prefill,
        unit="clone",
        goals=at_most(0.75, 0.75, 0.85),
        large=True,
    ),
    Case(
        "given",
        "the same into outputs that exist (`out=`), in units of `copy_` of both",
        _given,
        unit="copy_",
        goals=at_most(0.9),
        large=True,
    ),
    Case(
        "in-place",
        "the same in place (`out=(q, k)`), in units of `copy_` of both into other tensors",
        _in_place,
        unit="copy_",
        goals=at_most(0.7, 0.85),
        large=True,
    ),
    Case(
        "rounded",
        "the same sizes by tables in bfloat16, every product rounded as most model code does, into outputs that exist, "
        "in units of `copy_` of both",
        _rounded,
        unit="copy_",
        goals=at_most(1.15),
        dtypes=("bfloat16",),
        large=True,
    ),
    Case(
        "training",
        "forward and backward of `apply_rotary_qk`, q and k [4, 16, 1024, 64], in units of forward and backward of "
        "`x * 1.0` on both",
        _training,
        unit="x * 1.0",
        goals=at_most(0.8, 0.9),
        large=True,
        gradient=True,
    ),
    Case(
        "threads",
        "`prefill` on two threads (or on more, if `--threads` says so), wall time, in units of a clone of both",
        _prefill,
        unit="clone",
        goals=at_most(0.9),
        large=True,
        threads=2,
    ),
)
