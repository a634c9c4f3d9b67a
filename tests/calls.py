"""Random calls of all that rotates, and the law of kernels: each gives the bits of the reference, or both refuse alike.

A call is drawn from a seed: a spec, shapes, strides, an order of axes, a dtype, an entry point, results that are new,
given or in place, gradients, tables or positions; good, and with ``bad`` whatever else may come. It is built anew for
each kernel, so that results, gradients, all memory and what autograd is told of writes can be compared.
"""

import contextlib
import math
import platform
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from core.conftest import FACTORS, LOG_SCALE, SECOND, SPECS
from phasor import (
    Layout,
    RotarySpec,
    Rotation,
    apply_qk_norm_rotary,
    apply_rotary,
    apply_rotary_qk,
    apply_rotary_qkv,
    reposition,
    rotate,
    shift,
)
from phasor.caches import apply_rotary_to_cache, apply_rotary_to_latent_cache, change_spec, unrotate
from phasor.rotary import kernels
from phasor.rotary.axes import Axial, OneAxis, Sections
from phasor.rotary.kernels import eager
from phasor.rotary.scaling import DynamicNTK, Linear, YaRN
from phasor.rotary.spec import Angles

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
OTHERS = (torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.complex64)
FLOAT8 = torch.float8_e4m3fn
WIDTHS = (2, 4, 6, 10, 16, 22, 32, 34, 48, 64, 64, 80, 96, 128, 128, 160, 256, 320)
FORMATS = ("bhsd", "bshd", "sbhd", "thd")
ROUNDINGS = ("once", "between", "before_weight")
LENGTH = 40  # of sequences whose frequencies depend on it
KNOWN = [*FACTORS.values(), *SECOND.values(), *SPECS.values()]
POOL = torch.randn(2**16, generator=torch.Generator().manual_seed(0))
FAKES = FakeTensorMode(allow_non_fake_inputs=True)
WORST = (float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-40, 3e38, 65519.0, 6e-8, 1e-5)
NORMED = (apply_qk_norm_rotary, apply_rotary_to_cache, apply_rotary_to_latent_cache)
# What tensors of other kinds say while a call is built.
NOT_A_CALL = (AttributeError, IndexError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError)


class Watched(Tensor):
    """A subclass."""


class Functions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


# ---- Tensors that are not what they seem ----


def odd_address(x: Tensor) -> Tensor:
    """As a file mapped to memory may have it."""
    memory = bytearray(x.numel() * x.element_size() + 1)
    return torch.frombuffer(memory, dtype=x.dtype, count=x.numel(), offset=1).view(x.shape).copy_(x)


def of_inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


def escaped(x: Tensor) -> Tensor:
    """What a transform wraps, outside of it."""
    kept: list[Tensor] = []
    torch.vmap(lambda row: kept.append(row) or row)(x)
    return kept[0]


def dual(x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.make_dual(x, torch.ones_like(x))


HOSTILE: dict[str, Callable[[Tensor], Any]] = {
    "lazy zeros": lambda x: torch.ops.aten._efficientzerotensor(x.shape, dtype=x.dtype) if x.numel() else x,
    "the sign of a conjugate": lambda x: torch.complex(x, x).conj().imag,
    "a lazy sign": torch._neg_view,
    "conjugate": lambda x: x.to(torch.complex64).conj(),
    "on meta": lambda x: x.to("meta"),
    "of a subclass": lambda x: x.as_subclass(Watched),
    "a parameter": lambda x: torch.nn.Parameter(x.detach(), requires_grad=False),
    "a buffer": lambda x: torch.nn.Buffer(x.detach()),
    "sparse": lambda x: x.to_sparse(),
    "sparse rows": lambda x: x.to_sparse_csr(),
    "for other hardware": lambda x: x.to_mkldnn(),
    "quantized": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "nested": lambda x: torch.nested.nested_tensor([x]),
    "nested, jagged": lambda x: torch.nested.nested_tensor([x], layout=torch.jagged),
    "of inference mode": of_inference,
    "with a gradient": lambda x: x.detach().requires_grad_(),
    "with a history": lambda x: x.detach().requires_grad_() * 1,
    "fake": lambda x: FakeTensorMode().from_tensor(x),  # which torch lets meet no other tensor
    "copied when written": torch._lazy_clone,
    "at an odd address": odd_address,
    "out of a transform": escaped,
    "with a tangent": dual,
    "of another dtype": lambda x: x.to(random.Random(x.numel()).choice((*OTHERS, *FLOATS))),
    "of eight bits": lambda x: x.to(FLOAT8),
    "uint16": lambda x: torch.zeros(x.shape, dtype=torch.uint16),
    "an axis more": lambda x: x.unsqueeze(0),
    "an axis less": lambda x: x[0],
    "no axes": lambda x: torch.zeros((), dtype=x.dtype),
    "longer": lambda x: torch.cat((x, x), -2),
    "wider": lambda x: torch.cat((x, x), -1),
    "a channel short": lambda x: x[..., :-1],
    "two batches": lambda x: torch.cat((x, x)),
    "turned round": lambda x: x.mT,
    "one number": lambda x: x.flatten()[:1].squeeze().expand(x.shape),
    "numpy": lambda x: x.float().numpy(),
    "a list": lambda x: x.tolist(),
}
JUNK = (
    None, 3, -1, 2**70, 1.5, "x", "bhsd", b"", [], (), (1, 2), {}, True, torch.float32, Tensor, object(), np.ones(3),
)  # fmt: skip


# ---- Calls ----


@dataclass
class Call:
    function: Any
    args: list[Any]
    kwargs: dict[str, Any]
    memory: list[Tensor] = field(default_factory=list)  # of everything that is not new
    around: Any = field(default_factory=contextlib.nullcontext)
    back: str = ""  # gradients: "once", of "one" result of two, "twice", or "many" at once

    @property
    def has_norm(self) -> bool:
        return self.function in NORMED and self.kwargs.get("eps") is not None


@lru_cache(maxsize=4096)
def spec_of(number: int, small: bool = False) -> RotarySpec:
    rng = random.Random(number)
    if rng.random() < 0.3:
        return rng.choice(KNOWN)
    while True:
        width = rng.choice(WIDTHS[:13] if small else WIDTHS)
        if rng.random() < 0.03 and not small:
            width = rng.choice((1022, 1024, 1026, 2048))
        turned = rng.choice([width, width, *(r for r in (2, 4, 16, 30, 32, 64) if r <= width)])
        pairs, interleaved = turned // 2, rng.random() < 0.4
        axes = rng.choice((1, 1, 1, 2)) if pairs > 1 else 1
        halves = (pairs - pairs // 2, pairs // 2)
        with contextlib.suppress(ValueError):
            return RotarySpec(
                head_dim=width, rotary_dim=turned, trailing=turned < width and rng.random() < 0.5,
                interleaved=interleaved, permuted=interleaved and rng.random() < 0.3,
                base=rng.choice((1e2, 1e4, 5e5)), reverse=rng.random() < 0.2,
                blocks=1 if interleaved else rng.choice([1, 1, *(b for b in (2, 5, 8, 129) if pairs % b == 0)]),
                axes=OneAxis() if axes == 1 else rng.choice((Axial, Sections))(halves),
                second=OneAxis() if axes == 1 and rng.random() < 0.03 else None,
                scaling=rng.choice((None, None, None, Linear(factor=4.0), YaRN(factor=8.0, original_max_position=64),
                                    DynamicNTK(factor=2.0, original_max_position=16))),
                coordinates="real" if rng.random() < 0.1 else "integer",
                angles=rng.choice(("exact",) * 6 + get_args(Angles)[1:]),
                tables=rng.choice(("activation", "activation", "float32", "rounded", "promoted", "float64")),
            )  # fmt: skip


class Draw:
    """What a call is made of. ``small``: for a kernel that is interpreted; ``bad``: with what is to be refused, too."""

    def __init__(self, seed: str, bad: bool = True, small: bool = False, device: str = "cpu"):
        self.rng, self.bad, self.small, self.memory, self.device = random.Random(seed), bad, small, [], device  # type: ignore[var-annotated]
        torch.default_generator.manual_seed(random.Random(seed).getrandbits(60))
        one, often = self.one, self.often
        self.spec = spec_of(self.rng.randrange(2000), small)
        self.format, self.dtype = one(*FORMATS), one(*FLOATS) if often(0.96) or small else torch.float64
        few = (1, 2) if small else (1, 1, 1, 2, 2, 3) if often(0.95) else (0, 1, 2)
        self.lead = [one(*few) for _ in range(one(1, 1, 1, 2) if small else one(1, 1, 1, 1, 1, 0, 2, 3, 4, 5))]
        self.heads, self.of_k = (one(1, 2, 3), one(1, 2)) if small else (one(1, 2, 2, 3, 5, 8), one(1, 2, 3))
        self.seq = one(1, 2, 5) if small else one(1, 1, 2, 5, 15, 16, 17, 33)
        if often(0.05):
            self.seq, self.heads, self.of_k = one((0, 1, 2), (5, 0, 1), (20, 1, 0), (0, 0, 0))
        if math.prod(self.lead) * self.heads * self.seq * self.spec.head_dim > (2**13 if small else 2**16):
            self.lead = [1] * len(self.lead)
        if often(0.003) and not small:  # large pages, stores past the cache, several threads
            self.seq, self.heads, self.lead = one(513, 1024, 1500), one(16, 32), [one(1, 2)]
        batch = {"thd": [], "sbhd": (*self.lead, 1)[:1]}.get(self.format, self.lead[-1:])
        self.batch = one([], [], batch, [1] * len(batch)) if often(0.99) or not bad else [7]

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def often(self, chance: float) -> bool:
        return self.rng.random() < chance

    def sometimes(self, chance: float, x: Any, junk: bool = False) -> Any:
        """x, or something else in its place."""
        if not (self.bad and self.often(chance)):
            return x
        if junk or not isinstance(x, Tensor):
            return self.one(*JUNK)
        with contextlib.suppress(Exception):  # not every tensor can be made so
            return HOSTILE[self.one(*HOSTILE)](x)
        return x

    # -- tensors --

    def values(self, shape: Any, dtype: torch.dtype) -> Tensor:
        """Moderate numbers, and sometimes the worst."""
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(self.device, dtype)
        count, start = math.prod(shape), self.rng.randrange(1000)
        pool = POOL if start + count <= len(POOL) else POOL.repeat(1 + (start + count) // len(POOL))
        x = pool[start : start + count].clone().view(*shape)
        if self.bad and self.often(0.1) and x.numel():
            x.view(-1)[torch.randint(0, x.numel(), (3,))] = torch.tensor([self.one(*WORST) for _ in range(3)])
        return x.to(self.device, dtype)

    def tensor(self, shape: Any, dtype: torch.dtype) -> Tensor:
        """Of any strides that torch allows: gaps, other orders of axes, steps of zero, steps that overlap."""
        rng, rank = self.rng, len(shape)
        kind = self.one("plain", "plain", "plain", "gaps", "order", "steps", "expanded", "overlapping", "offset")
        if kind == "gaps":
            wide = list(shape)
            for axis in rng.sample(range(rank), min(2, rank)):
                wide[axis] += self.one(0, 1, 5, 16)
            base = self.values(wide, dtype)
            x = base[tuple(slice(more - size, None) for more, size in zip(wide, shape, strict=True))]
        elif kind == "order":
            order = rng.sample(range(rank), rank)
            base = self.values([shape[axis] for axis in order], dtype)
            x = base.permute([order.index(axis) for axis in range(rank)])
        elif kind == "steps":
            steps = [1] * rank
            for axis in rng.sample(range(rank), min(2, rank)):
                steps[axis] = self.one(1, 2, 3)
            base = self.values([size * step for size, step in zip(shape, steps, strict=True)], dtype)
            x = base[tuple(slice(None, None, step) for step in steps)]
        elif kind == "expanded":
            base = self.values([1 if self.often(0.4) else size for size in shape], dtype)
            x = base.expand(shape)
        elif kind == "overlapping":
            strides = [self.one(0, 1, 1, 2, 7, 16) for _ in shape]
            base = self.values([1 + sum(max(0, n - 1) * s for n, s in zip(shape, strides, strict=True))], dtype)
            x = base.as_strided(shape, strides)
        elif kind == "offset":
            count = math.prod(shape)
            base = self.values([count + 3], dtype)
            x = base[self.one(1, 2, 3) :][:count].view(shape)
        else:
            x = base = self.values(shape, dtype)
        self.memory.append(base)
        return x

    def shape(self, heads: int, width: int | None = None, seq: int | None = None) -> list[int]:
        seq, width = self.seq if seq is None else seq, self.spec.head_dim if width is None else width
        return {
            "bhsd": [*self.lead, heads, seq, width],
            "bshd": [*self.lead, seq, heads, width],
            "sbhd": [seq, (*self.lead, 1)[0], heads, width],
            "thd": [seq, heads, width],
        }[self.format]

    def outputs(self, inputs: list[Any]) -> Any:
        """New ones, of any strides, in place, of each other's inputs, or nonsense."""
        made: list[Any] = []
        for i, x in enumerate(inputs):
            if not isinstance(x, Tensor):
                made.append(None)
                continue
            often = ("new", "new", "strided", "here", "here")
            kind = self.one(*often * 2, "other", "shifted", "hostile", "junk") if self.bad else self.one(*often)
            y: Any = x
            if kind in ("new", "hostile"):
                y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
                self.memory.append(y)
                y = self.sometimes(1, y) if kind == "hostile" else y
            elif kind == "strided":
                y = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype, device=x.device)[..., ::2]
                self.memory.append(y)
                y = self.tensor(x.shape, x.dtype) if self.bad and self.often(0.5) else y
            elif kind == "other":
                y = inputs[1 - i] if len(inputs) > 1 else x.mT
            elif kind == "shifted":
                y = x[..., 1:]
            elif kind == "junk":
                y = self.one(*JUNK)
            made.append(y)
        if len(inputs) == 1:
            return made[0]
        return made[0] if self.bad and self.often(0.03) else self.one(tuple, tuple, tuple, list)(made)

    # -- angles --

    def positions(self, seq: int | None = None, spec: RotarySpec | None = None) -> Tensor:
        spec, seq = spec or self.spec, self.seq if seq is None else seq
        shape = [*(() if spec.axes.count == 1 else (spec.axes.count,)), *self.batch, seq]
        x = self.tensor(shape, self.one(torch.int64, torch.int64, torch.int32))
        if x.numel() and self.often(0.5):
            drawn = torch.empty_like(self.memory[-1], device="cpu").random_(-(2**31), 2**31 - 1)
            self.memory[-1].copy_(drawn)  # each device has a generator of its own
        return x.double() if spec.coordinates == "real" and self.often(0.5) else x

    def rotation(self, seq: int | None = None) -> Rotation:
        """By the spec, or any tables."""
        spec, seq, dtype = self.spec, self.seq if seq is None else seq, self.dtype
        if self.often(0.5):
            scale = LOG_SCALE.to(self.device) if spec.learned else None
            length = LENGTH if spec.length_dependent else self.one(None, LENGTH)
            return Rotation.at(spec, self.positions(seq), length, log_scale=scale, dtype=dtype)
        per_head, layout = self.often(0.25), spec.layout
        shape = [*self.batch, *((self.heads,) if per_head else ()), seq, layout.pairs]
        kind = self.one(torch.float32, torch.float32, dtype, *FLOATS, torch.float64)
        state = self.rng.getstate()
        cos = self.tensor(shape, kind)
        if self.often(0.8):
            self.rng.setstate(state)  # of the same strides
        sin = self.tensor(shape, kind)
        second = (sin, cos) if self.often(0.03) else None
        if self.often(0.1) and layout.blocks == 1:
            names = ("head_dim", "rotary_dim", "trailing", "interleaved", "blocks")
            layout = Layout(**{name: getattr(layout, name) for name in names}, permuted=True)
        cos, promoted = self.sometimes(0.1, cos), self.often(0.1)
        return Rotation(cos=cos, sin=sin, layout=layout, per_head=per_head, promoted=promoted, second=second)

    # -- entry points --

    def call(self, kind: str | None = None) -> Call:
        often = ("tables", "phases") * 4
        kind = kind or self.one(*often, "packed", "norm", "norm", "cache", "cache", "latent", "move")
        call: Call = getattr(self, kind)()
        call.memory, call.around = self.memory, self.around() if self.bad else contextlib.nullcontext()
        given = [*call.args, *call.kwargs.values()]
        given += [table for x in given if isinstance(x, Rotation) for table in (x.cos, x.sin)]
        if isinstance(call.around, forward_ad.dual_level) and any(isinstance(x, FakeTensor) for x in given):
            call.around = contextlib.nullcontext()  # torch 2.13 raises there, and the thread forgets autograd
        if self.bad and self.often(0.02):
            call.args[self.rng.randrange(len(call.args))] = self.one(*JUNK)
        return call

    def around(self) -> Any:
        low = torch.float16 if self.dtype == torch.float16 else torch.bfloat16  # torch.cat knows no mixture
        if self.often(0.8):
            return contextlib.nullcontext()
        return self.one(
            torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", low), Functions, Dispatches,
            forward_ad.dual_level, lambda: torch.autograd.graph.saved_tensors_hooks(Tensor.clone, lambda t: t),
            lambda: torch.autograd.graph.save_on_cpu(), lambda: FAKES, lambda: torch.device("cpu"),
        )()  # fmt: skip

    def q_and_k(self, seq_of_k: int | None = None, per_head: bool = False) -> tuple[Any, Any]:
        q = self.tensor(self.shape(self.heads), self.dtype)
        k: Any = self.tensor(self.shape(self.heads if per_head else self.of_k, seq=seq_of_k), self.dtype)
        if self.often(0.05) and k.ndim > 3:  # what all rows have in common comes once, or without the axis
            k = self.one(k[:1], k[0]) if k.shape[0] else k
        return self.sometimes(0.08, q), self.sometimes(0.08, self.one(k, k, None))

    def about(self) -> dict[str, Any]:
        return {"tensor_format": self.sometimes(0.02, self.format, junk=True)}

    def learning(self, *inputs: Any) -> str:
        """Whether, and how, gradients are asked for; then some of the inputs need one."""
        if not self.often(0.2):
            return ""
        for x in inputs:
            if isinstance(x, Tensor) and x.is_leaf and x.is_floating_point() and self.often(0.7):
                with contextlib.suppress(Exception):
                    x.requires_grad_()
        return self.one("once", "once", "one", "twice", "many")

    def flat(self, given: dict[str, Any], *inputs: Any) -> list[Any]:
        """Heads side by side on the last axis."""
        x = inputs[0]
        if self.format != "bhsd" and self.often(0.2) and isinstance(x, Tensor) and x.ndim > 2 and not x.is_sparse:
            with contextlib.suppress(Exception):
                together = [y.flatten(-2) if isinstance(y, Tensor) else y for y in inputs]
                given["num_heads"] = x.shape[-2]
                return together
        return list(inputs)

    def tables(self) -> Call:
        given, apart = self.about(), self.often(0.15)
        seq_of_k = self.one(1, 3, 20) if apart else None
        rotation = self.rotation()
        q, k = self.q_and_k(seq_of_k, rotation.per_head and self.often(0.8))
        back = self.learning(q, k)
        q, k = self.flat(given, q, k)
        if apart:
            given["k_rotation"] = self.rotation(seq_of_k)
        single = k is None and not apart and self.often(0.7)
        if self.often(0.4):
            given["out"] = self.outputs([q] if single else [q, k])
        if single:
            return Call(apply_rotary, [q, rotation], given, back=back)
        return Call(apply_rotary_qk, [q, k, rotation], given, back=back)

    def phases(self) -> Call:
        given, apart = self.about(), self.often(0.15)
        seq_of_k = self.one(1, 3, 20) if apart else None
        positions = self.sometimes(0.08, self.positions())
        q, k = self.q_and_k(seq_of_k)
        back = self.learning(q, k)
        q, k = self.flat(given, q, k)
        if self.often(0.4):
            given["out"] = self.outputs([q, k])
        if self.spec.length_dependent or self.often(0.1):
            given["seq_len"] = self.one(0, -1, "x", 2.0, True) if self.bad and self.often(0.1) else self.one(1, LENGTH)
        if apart:
            given["k_positions"] = self.positions(seq_of_k)
        return Call(rotate, [q, k, positions, self.spec], given, back=back)

    def packed(self) -> Call:
        """Queries, keys and values in one tensor."""
        three, of_k, given = self.often(0.5), max(1, self.of_k), {}
        shape = [*self.lead, self.seq, *((3, self.heads) if three else (self.heads + 2 * of_k,)), self.spec.head_dim]
        self.format = "bshd"
        qkv, rotation = self.sometimes(0.08, self.tensor(shape, self.dtype)), self.rotation()
        if not three:
            given["num_heads"] = self.sometimes(0.05, self.heads)
        back = self.learning(qkv)
        if self.often(0.5):
            given["out"] = self.outputs([qkv])
        return Call(apply_rotary_qkv, [qkv, rotation], given, back=back)

    def weight(self, channels: int) -> Tensor:
        return self.values([channels], self.one(torch.float32, self.dtype))

    def norm_settings(self) -> dict[str, Any]:
        eps = self.one(1e-6, 1e-3, 0.1)  # of 0 a row of zeros has no norm: an edge
        return {"eps": self.sometimes(0.03, eps, junk=True), "unit_offset": self.often(0.5),
                "rounding": self.sometimes(0.03, self.one(*ROUNDINGS), junk=True)}  # fmt: skip

    def norm(self) -> Call:
        given, rotation = self.about() | self.norm_settings(), self.rotation()
        q, k = self.q_and_k(None, rotation.per_head)
        given |= {"across_heads": self.often(0.3), "after": self.often(0.3)}
        heads = (self.heads, self.heads if rotation.per_head else self.of_k) if given["across_heads"] else (1, 1)
        weights: list[Any] = [self.sometimes(0.05, self.weight(h * self.spec.head_dim)) for h in heads]
        weights = weights if self.often(0.8) else [None, None]
        back = ""
        if self.dtype == torch.float32:  # else autograd rounds what the plain expression passes back
            back = self.learning(q, k, *weights).replace("twice", "once").replace("many", "once")
        q, k = self.flat(given, q, k)
        if self.often(0.4):
            given["out"] = self.outputs([q, k])
        return Call(apply_qk_norm_rotary, [q, k, rotation, *weights], given, back=back)

    def slots(self, shape: list[int], room: int) -> Tensor:
        """One for each token, some of them -1; bad ones outside, or twice."""
        chosen = [-1 if self.often(0.2) else s for s in self.rng.sample(range(room), math.prod(shape))]
        if self.bad and chosen and self.often(0.1):
            wrong = self.one(-2, room, chosen[-1], 2**40)
            if self.device == "cpu":  # what a GPU finds outside ends all that its process does there
                chosen[0] = wrong
        slots = torch.tensor(chosen, dtype=torch.int64, device=self.device).view(shape)
        slots = slots.int() if self.often(0.3) and abs(slots).lt(2**31).all() else slots
        return torch.stack((slots, slots), -1)[..., 0] if self.often(0.2) else slots

    def cache_like(self, shape: list[int], dtype: torch.dtype) -> Tensor:
        """Contiguous, with gaps, of strided channels, or the half of a tensor that holds keys and values."""
        kind = self.one("plain", "gaps", "halves", "strided")
        base = {"gaps": [*shape[:-1], shape[-1] + 3], "strided": [*shape[:-1], 2 * shape[-1]],
                "halves": [shape[0], 2, *shape[1:]]}.get(kind, shape)  # fmt: skip
        x = self.values(base, torch.float32).to(dtype)
        self.memory.append(x)
        return {"gaps": lambda: x[..., :-3], "strided": lambda: x[..., ::2], "halves": lambda: x[:, 1]}.get(
            kind, lambda: x
        )()

    def scale(self, heads: int) -> Any:
        each = torch.rand(heads).to(self.device) + 0.01
        return self.sometimes(0.05, self.one(0.02, 1.0, each[:1], each, torch.stack((each, each), -1)[:, 0]))

    def tokens(self) -> list[int]:
        """The sizes of a tensor with one number for each token."""
        return {"thd": [self.seq], "sbhd": [(*self.lead, 1)[0], self.seq]}.get(self.format, [*self.lead, self.seq])

    def cache(self) -> Call:
        given, rotation, of_k = self.about(), self.rotation(), max(1, self.of_k)
        q = self.sometimes(0.04, self.tensor(self.shape(self.heads), self.dtype))
        k = self.sometimes(0.04, self.tensor(self.shape(of_k), self.dtype))
        v = self.sometimes(0.04, self.tensor(self.shape(of_k, self.one(self.spec.head_dim, 24)), self.dtype))
        tokens, size, kv_layout = self.tokens(), self.one(1, 3, 16), self.one("NHD", "HND")
        blocks = math.prod(tokens) // size + 2
        caches: list[Any] = []
        for name, x in (("k", k), ("v", v)):
            width = x.shape[-1] if isinstance(x, Tensor) and x.ndim else 1
            dtype = self.dtype
            if name == "k" and rotation.promoted:
                dtype = torch.promote_types(dtype, rotation.cos.dtype)
            if self.often(0.3):
                dtype, given[f"{name}_scale"] = FLOAT8, self.scale(of_k)
            shape = [blocks, size, of_k, width] if kv_layout == "NHD" else [blocks, of_k, size, width]
            caches.append(self.sometimes(0.04, self.cache_like(shape, dtype)))
        if self.often(0.4):
            given |= self.norm_settings()
            if self.often(0.8):
                given |= {name: self.weight(self.spec.head_dim) for name in ("q_weight", "k_weight")}
        if self.often(0.4):
            given["out"] = self.outputs([q])
        slots = self.sometimes(0.04, self.slots(tokens, blocks * size))
        given["kv_layout"] = self.sometimes(0.02, kv_layout, junk=True)
        return Call(apply_rotary_to_cache, [q, k, v, rotation, *caches, slots], given)

    def latent(self) -> Call:
        """MLA's rows: the rotating part of q is a view of whole heads, k is one head, the latent has no heads."""
        given, rotation, rank, width = self.about(), self.rotation(), self.one(16, 32, 48), self.spec.head_dim
        q = self.tensor(self.shape(self.heads, width + 24), self.dtype)[..., 24:]
        k = self.sometimes(0.04, self.tensor(self.shape(1), self.dtype))
        tokens = self.tokens()
        rows = tokens[::-1] if self.format == "sbhd" else tokens
        latent, size = self.sometimes(0.04, self.tensor([*rows, rank], self.dtype)), self.one(1, 3, 16)
        blocks, dtype = math.prod(tokens) // size + 2, self.dtype
        if self.often(0.3):
            dtype, given["scale"] = FLOAT8, self.one(0.02, 1.0, torch.tensor(0.3, device=self.device))
        cache = self.sometimes(0.04, self.cache_like([blocks, size, rank + width], dtype))
        if self.often(0.6):
            given |= self.norm_settings()
            if self.often(0.8):
                given["latent_weight"] = self.weight(rank)
        if self.often(0.3):
            given["out"] = self.outputs([q])
        slots = self.slots(tokens, blocks * size)
        return Call(apply_rotary_to_latent_cache, [q, k, latent, rotation, cache, slots], given)

    def move(self) -> Call:
        """Keys that were rotated already."""
        spec, given = self.spec.at_length(LENGTH), self.about()
        if spec.learned:
            given["log_scale"] = LOG_SCALE.to(self.device)
        k = self.sometimes(0.08, self.tensor(self.shape(self.of_k), self.dtype))
        if self.often(0.4):
            given["out"] = self.outputs([k])
        at = self.sometimes(0.04, self.positions())
        other = spec if spec.frequencies else spec.replace(base=77.0)
        by = self.one(-3, 1000) if spec.axes.count == 1 else (5, *[-3] * (spec.axes.count - 1))
        function, rest = self.one(
            (shift, (by, spec)), (reposition, (at, at.flip(-1) if isinstance(at, Tensor) else at, spec)),
            (change_spec, (at, spec, other)), (unrotate, (at, spec)),
        )  # fmt: skip
        return Call(function, [k, *rest], given)


def built(
    seed: str, kind: str | None = None, bad: bool = True, small: bool = False, device: str = "cpu"
) -> Call | None:
    """The call of a seed; None if nothing comes of it, as of a rotation whose tables are refused."""
    try:
        return Draw(seed, bad, small, device).call(kind)
    except NOT_A_CALL:
        return None


# ---- What became of it ----


def bits(x: Any, signed: bool = True) -> Any:
    """Something that is equal where dtype, shape, kind and all bits are; one NaN is as good as another.

    Zeros have no sign unless ``signed``: torch multiplies those without memory by rules of their own.
    """
    if not isinstance(x, Tensor):
        return x
    kind = (type(x), x.dtype, tuple(x.shape), x.device.type, x.requires_grad)
    if x.is_meta or type(x) not in (Tensor, torch.nn.Parameter, Watched) or x.layout != torch.strided or x.is_quantized:
        return kind
    y = x.detach().as_subclass(Tensor).resolve_neg().resolve_conj()
    if y.dtype == FLOAT8:
        y = torch.where(y.float().isnan(), 0x7F, y.view(torch.uint8))
    elif y.dtype.is_floating_point and y.dtype.itemsize > 1:
        y = torch.where(y.isnan(), float("nan"), y if signed else y + 0.0)
    return kind, y.contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes()


@dataclass
class Outcome:
    """``error``: its type, and of a ValueError its words. Else results and gradients; and memory before and after."""

    error: tuple[Any, ...] = ()
    results: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    signed: bool = True
    before: list[Any] = field(default_factory=list)
    memory: list[Tensor] = field(default_factory=list)
    written: list[bool] = field(default_factory=list)  # whether autograd was told

    @property
    def after(self) -> list[Any]:
        return [bits(x, self.signed) for x in self.memory]

    @property
    def declined(self) -> bool:
        return bool(self.error) and "cannot rotate these: " in str(self.error[-1])


def outcome(call: Call, kernel: str) -> Outcome:
    tables = [table for x in call.args if isinstance(x, Rotation) for table in (x.cos, x.sin)]
    signed = not any(isinstance(x, Tensor) and x._is_zerotensor() for x in (*call.args, *tables))
    found = Outcome(signed=signed, memory=call.memory, before=[bits(x, signed) for x in call.memory])
    counts = [version(x) for x in call.memory]
    try:
        with call.around:
            results = call.function(*call.args, **call.kwargs, kernel=kernel)
            found.results = list(results) if isinstance(results, tuple) else [results]
            found.gradients = gradients(call, found.results)
    except Exception as error:
        found.error = (RuntimeError,) if isinstance(error, RuntimeError) else (type(error),)  # torch has several
        if isinstance(error, ValueError):  # torch counts the lengths of jagged tensors anew
            found.error = (type(error), re.sub(r"\bj\d+\b", "j", str(error)))
        # torch.cat of float16 where autocast is for bfloat16; an eps that is no float64
        if "autocast::prioritize" in str(error) or isinstance(error, OverflowError):
            found.error = ("a limit of torch",)
    # Zeros without memory times NaN are zeros to torch, and NaN when they have memory.
    if not signed and any(type(y) is Tensor and not y.is_meta and bool(y.isnan().any()) for y in found.results):
        found.error = ("a limit of torch",)
    found.written = [version(x) > count for x, count in zip(call.memory, counts, strict=True)]
    return found


def version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version


def gradients(call: Call, results: list[Any]) -> list[Any]:
    given = [*call.args, *call.kwargs.values()]
    wanted = [x for x in given if isinstance(x, Tensor) and x.requires_grad and x.is_leaf]
    able = [y for y in results if isinstance(y, Tensor) and y.requires_grad]
    if not (call.back and wanted and able):
        return []
    able = able[-1:] if call.back == "one" else able
    up = [torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype) for y in able]
    if call.back == "twice":
        cubes = [y**3 for y in able]
        first = torch.autograd.grad(cubes, wanted, up, allow_unused=True, create_graph=True)
        first = [g for g in first if g is not None and g.requires_grad]
        ones = [torch.ones_like(g) for g in first]
        return list(torch.autograd.grad(first, wanted, ones, allow_unused=True)) if first else []
    if call.back == "many":
        up = [torch.stack((u, -2 * u)) for u in up]
        return list(torch.autograd.grad(able, wanted, up, allow_unused=True, is_grads_batched=True))
    return list(torch.autograd.grad(able, wanted, up, allow_unused=True))


def dense(call: Call) -> Call:
    """Of heads that do not lie side by side torch adds squares in another order than kernels do: contiguous copies."""
    for i, x in enumerate(call.args[:3]):
        if type(x) is Tensor and x.layout == torch.strided and not x.is_contiguous():
            call.args[i] = x.detach().contiguous().requires_grad_(x.requires_grad) if x.is_leaf else x.contiguous()
    return call


# ---- The law ----


@dataclass
class Way:
    """To a result: a kernel by its name, and what is settled around it. ``near``: its norms add in their own order."""

    kernel: str
    settled: Callable[[], Any] = contextlib.nullcontext
    near: bool = False


@contextlib.contextmanager
def instructions(name: str) -> Iterator[None]:
    kernels.native._native.use(name)
    try:
        yield
    finally:
        kernels.native._native.use(None)


@contextlib.contextmanager
def without_native(block: int, few: int) -> Iterator[None]:
    """The eager kernel, as where there is no compiler: ``block`` elements at a time, together below ``few``."""
    with (
        mock.patch.object(kernels, "KERNELS", [kernels.Eager(), kernels.Reference()]),
        mock.patch.object(kernels.native, "OPEN", ()),
        mock.patch.multiple(eager, BLOCK=block, FEW=few),
    ):
        yield


TORCH_ADDS_ALIKE = platform.machine().lower() in ("x86_64", "amd64")  # squares, in the order of the kernel in C
EAGER = {
    "eager, one token at a time": Way("auto", lambda: without_native(1, 0)),
    "eager, in blocks": Way("auto", lambda: without_native(600, 0)),
    "eager, q and k apart": Way("auto", lambda: without_native(2**40, 0)),
    "eager, q and k together": Way("auto", lambda: without_native(2**40, 2**40)),
}
TRITON = {"triton": Way("triton", near=True)}


def native_ways(sets: list[str]) -> dict[str, Way]:
    near = not TORCH_ADDS_ALIKE
    ways = {f"native, {name}": Way("native", lambda name=name: instructions(name), near) for name in sets}
    return ways | {f"auto, {sets[0]}": Way("auto", lambda: instructions(sets[0]), near)} if sets else {}


def check(
    build: Callable[[], Call | None], ways: dict[str, Way], seen: Callable[[str], None] = lambda what: None
) -> str:
    """What is not as the law says, or nothing."""
    if (call := build()) is None:
        seen("not a call")
        return ""
    expected = outcome(call, "reference")
    refused = bool(expected.error)
    allowed = [expected]
    if call.has_norm and not refused:
        allowed.append(outcome(dense(build()), "reference"))  # type: ignore[arg-type]
    worded = expected.error[:1] == (ValueError,)  # by phasor, before anything is done
    if worded and expected.after != expected.before:
        return f"reference: refused ({expected.error}), and written; {described(call)}"
    for name, way in ways.items():
        call = build()  # type: ignore[assignment]
        with way.settled():
            got = outcome(call, way.kernel)
        if ("a limit of torch",) in (got.error, expected.error):
            seen("a limit of torch")
        elif got.declined and way.kernel != "auto":
            seen("declined")
        elif got.error != expected.error:
            return f"{name}: {got.error or 'a result'}, reference: {expected.error or 'a result'}; {described(call)}"
        elif refused:
            if worded and got.after != got.before:
                return f"{name}: refused, and written; {described(call)}"
            seen("refused by both")
        elif all(wrong := [differs(call, got, one, way.near) for one in allowed]):
            return f"{name}: {wrong[-1]}; {described(call)}"
        else:
            seen("same bits")
            seen(f"same bits: {call.function.__name__}")
            if "out" in call.kwargs:
                seen("same bits, outputs given")
            if got.gradients:
                seen(f"same bits, gradients {call.back}")
    return ""


def differs(call: Call, got: Outcome, expected: Outcome, near: bool) -> str:
    norm = call.has_norm
    alike = close if norm and (near or call.args[0].shape[-1] < 8) else equal  # of fewer channels torch adds otherwise
    for i, (a, b) in enumerate(zip(got.results, expected.results, strict=True)):
        if not alike(a, b, expected.signed):
            return f"result {i}: {shown(a, b)}"
        if type(a) is Tensor and "out" not in call.kwargs and a.layout == torch.strided and not a.is_contiguous():
            return f"result {i} is not contiguous"
    for i, (a, b) in enumerate(zip(got.gradients, expected.gradients, strict=True)):
        # gradients are sums, and autograd's have a zero more or less; those of norms and of cubes have another order
        if not (close(a, b, False, 1e-4) if norm or call.back == "twice" else equal(a, b, False)):
            return f"gradient {i}: {shown(a, b)}"
    for i, (a, b) in enumerate(zip(got.memory, expected.memory, strict=True)):
        if not alike(a, b, expected.signed):
            return f"memory {i}: {shown(a, b)}"
        if expected.written[i] and not got.written[i] and bits(a, got.signed) != got.before[i]:
            return f"memory {i} was written, and autograd not told"
    return ""


def equal(a: Any, b: Any, signed: bool) -> bool:
    return bool(bits(a, signed) == bits(b, signed))


def close(a: Any, b: Any, signed: bool, step: float = 2e-6) -> bool:
    """To a few roundings of the largest number; of bytes of float8 to one step, and rarely."""
    if equal(a, b, signed) or not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return equal(a, b, signed)
    if (a.dtype, a.shape, a.requires_grad) != (b.dtype, b.shape, b.requires_grad):
        return False
    a, b = a.detach(), b.detach()
    if a.dtype == FLOAT8:
        apart = (a.view(torch.uint8).int() - b.view(torch.uint8).int()).abs()
        return bool((apart <= 1).all() and (apart > 0).sum() <= max(2, 0.02 * apart.numel()))
    step = {torch.float32: step, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}.get(a.dtype, 1e-12)
    if a.dtype.itemsize == 2 and a.numel() >= 100 and (a != b).sum() > 0.04 * a.numel():
        return False  # of another rounding in between as many would differ
    a, b = a.double(), b.double()
    known = b.isfinite() & a.isfinite()
    if not torch.equal(a.nan_to_num(0)[~known], b.nan_to_num(0)[~known]):
        return False
    return not bool(known.any()) or bool((a - b)[known].abs().max() <= step * b[known].abs().max())


def shown(a: Any, b: Any) -> str:
    of = [x[0] if isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], bytes) else x for x in (bits(a), bits(b))]
    return f"{of[0]}, reference: {of[1]}"


def described(call: Call) -> str:
    def one(x: Any) -> Any:
        if isinstance(x, Rotation):
            return "Rotation", one(x.cos), one(x.sin), x.layout, x.per_head, x.promoted
        if isinstance(x, tuple | list):
            return [one(y) for y in x]
        try:
            return type(x).__name__, x.dtype, tuple(x.shape), x.stride(), x.requires_grad
        except Exception:
            return repr(x)[:80]

    kwargs = {name: one(value) for name, value in call.kwargs.items()}
    return f"{call.function.__name__} {[one(x) for x in call.args]} {kwargs} {type(call.around).__name__} {call.back}"
