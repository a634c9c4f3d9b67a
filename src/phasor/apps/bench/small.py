"""Decoding: one token, where the time is that of calling, and a batch of tokens, which fits the cache."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary_qk, rotate
from ...rotary.spec import RotarySpec
from .case import Case, Setting, at_most
from .large import WIDTH, clones, forwards_and_back, times_one
from .race import Calls

TOKEN = f"one token, q [1, 32, 1, {WIDTH}] and k [1, 8, 1, {WIDTH}]"
PLACE = 4097  # of the one token
STEPS = 64


def _decoded(q: Tensor, k: Tensor, positions: Iterator[Tensor], setting: Setting) -> partial[tuple[Tensor, Tensor]]:
    """A call that rotates by the next positions: whoever decodes has new ones at every step, which nothing may keep."""
    return partial(_next, q, k, positions, setting.spec(WIDTH), setting.kernel)


def _next(q: Tensor, k: Tensor, positions: Iterator[Tensor], spec: RotarySpec, kernel: str) -> tuple[Tensor, Tensor]:
    return rotate(q, k, next(positions), spec, kernel=kernel)


def _token(setting: Setting) -> Calls:
    q, k = setting.pair(1, 32, 8, 1, WIDTH)
    positions = cycle([torch.tensor([PLACE + n]) for n in range(STEPS)])
    return {"phasor": _decoded(q, k, positions, setting), "two clones": partial(clones, q, k)}


def _token_given(setting: Setting) -> Calls:
    q, k = setting.pair(1, 32, 8, 1, WIDTH)
    rotation = setting.rotation(WIDTH, torch.tensor([PLACE]))
    turn = partial(apply_rotary_qk, q, k, rotation, kernel=setting.kernel)
    return {"phasor": turn, "two clones": partial(clones, q, k)}


def _token_training(setting: Setting) -> Calls:
    q, k = (x.requires_grad_() for x in setting.pair(1, 32, 8, 1, WIDTH))
    rotation = setting.rotation(WIDTH, torch.tensor([PLACE]))
    turn = partial(apply_rotary_qk, q, k, rotation, kernel=setting.kernel)
    return {
        "phasor": forwards_and_back(turn, q, k),
        "x * 1.0": forwards_and_back(partial(times_one, q, k), q, k),
    }


def _batch(setting: Setting) -> Calls:
    batch = 4 if setting.quick else 64
    q, k = setting.pair(batch, 32, 8, 1, WIDTH)
    first = (torch.arange(batch) * 61).unsqueeze(-1)
    positions = cycle([first + n for n in range(STEPS)])
    return {"phasor": _decoded(q, k, positions, setting), "clone": partial(clones, q, k)}


SMALL = (
    Case(
        "token",
        f"`rotate` from the position, another one at every call, to new outputs, {TOKEN}, in units of a clone of both",
        _token,
        unit="two clones",
        goals=at_most(1.8),
        repeat=500,
    ),
    Case(
        "token-given",
        "`apply_rotary_qk` of the same by a rotation that exists, as in all layers of a model but the first, in units "
        "of a clone of both",
        _token_given,
        unit="two clones",
        goals=at_most(1.8),
        repeat=500,
    ),
    Case(
        "token-training",
        "forward and backward of that, in units of forward and backward of `x * 1.0` on both",
        _token_training,
        unit="x * 1.0",
        goals=at_most(2.0),
        gradient=True,
        repeat=100,
    ),
    Case(
        "batch",
        f"`rotate` for a batch of 64 decoded tokens, each at a position of its own, q [64, 32, 1, {WIDTH}] and "
        f"k [64, 8, 1, {WIDTH}], in units of a clone of both",
        _batch,
        unit="clone",
        goals=at_most(1.05, 1.3),
        repeat=50,
    ),
)
