"""Random calls, good and bad: whatever the native kernel returns has the bits of the reference, or both refuse.

    python tests/native/fuzz.py --minutes 10 --seed 1
    python tests/native/fuzz.py --case 1:4711                 # one of them again

Every case is built anew from its seed for each kernel, so that results, gradients, and all memory that outputs lie in
can be compared. ``tests/native/sanitized.py`` runs it under the sanitizers.
"""

import argparse
import collections
import contextlib
import faulthandler
import logging
import math
import random
import struct
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from phasor import Layout, RotarySpec, Rotation, apply_rotary, apply_rotary_qk, apply_rotary_qkv, rotate
from phasor.rotary.apply.outputs import overlaps_itself
from phasor.rotary.axes import Axial, OneAxis, Sections
from phasor.rotary.kernels.native import autograd
from phasor.rotary.kernels.native import kernel as native
from phasor.rotary.scaling import DynamicNTK, Linear, YaRN

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
OTHERS = (torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.complex64)
WIDTHS = (2, 4, 6, 10, 16, 22, 32, 34, 48, 64, 64, 80, 96, 128, 128, 160, 256, 320)
FORMATS = ("bhsd", "bshd", "sbhd", "thd")
POOL = torch.randn(2**16, generator=torch.Generator().manual_seed(0))
FAKES = FakeTensorMode(allow_non_fake_inputs=True)


class Watched(Tensor):
    """A subclass."""


class Functions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


# ---- Tensors ----


def values(rng: random.Random, shape: Any, dtype: torch.dtype) -> Tensor:
    """Moderate numbers, and sometimes the worst."""
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)
    count, start = math.prod(shape), rng.randrange(1000)
    pool = POOL if start + count <= len(POOL) else POOL.repeat(1 + (start + count) // len(POOL))
    x = pool[start : start + count].clone().view(*shape)
    if rng.random() < 0.1 and x.numel():
        worst = (float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-40, 3e38, 65519.0, 6e-8, 1e-5)
        at = torch.randint(0, x.numel(), (3,))
        x.view(-1)[at] = torch.tensor([rng.choice(worst) for _ in range(3)])
    return x.to(dtype)


def tensor(rng: random.Random, memory: list[Tensor], shape: Any, dtype: torch.dtype) -> Tensor:
    """Of any strides that torch allows: gaps, other orders of axes, steps of zero, steps that overlap."""
    kind = rng.choice(("plain", "plain", "plain", "gaps", "order", "steps", "expanded", "overlapping", "offset"))
    rank = len(shape)
    if kind == "gaps":
        wide = list(shape)
        for axis in rng.sample(range(rank), min(2, rank)):
            wide[axis] += rng.choice((0, 1, 5, 16))
        base = values(rng, wide, dtype)
        x = base[tuple(slice(more - size, None) for more, size in zip(wide, shape, strict=True))]
    elif kind == "order":
        order = rng.sample(range(rank), rank)
        base = values(rng, [shape[axis] for axis in order], dtype)
        x = base.permute([order.index(axis) for axis in range(rank)])
    elif kind == "steps":
        steps = [1] * rank
        for axis in rng.sample(range(rank), min(2, rank)):
            steps[axis] = rng.choice((1, 2, 3))
        base = values(rng, [size * step for size, step in zip(shape, steps, strict=True)], dtype)
        x = base[tuple(slice(None, None, step) for step in steps)]
    elif kind == "expanded":
        base = values(rng, [1 if rng.random() < 0.4 else size for size in shape], dtype)
        x = base.expand(shape)
    elif kind == "overlapping":
        strides = [rng.choice((0, 1, 1, 2, 7, 16)) for _ in shape]
        base = values(rng, [1 + sum(max(0, n - 1) * s for n, s in zip(shape, strides, strict=True))], dtype)
        x = base.as_strided(shape, strides)
    elif kind == "offset":
        count = math.prod(shape)
        base = values(rng, [count + 3], dtype)
        x = base[rng.choice((1, 2, 3)) :][:count].view(shape)
    else:
        x = base = values(rng, shape, dtype)
    memory.append(base)
    return x


def jagged(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor([x], layout=torch.jagged)


def freed(x: Tensor) -> Tensor:
    y = x.detach().clone()
    y.untyped_storage().resize_(0)
    return y


def odd_address(x: Tensor) -> Tensor:
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
    "nested, jagged": jagged,
    "of inference mode": of_inference,
    "with a gradient": lambda x: x.detach().requires_grad_(),
    "with a history": lambda x: x.detach().requires_grad_() * 1,
    "fake": lambda x: FAKES.from_tensor(x),
    "copied when written": torch._lazy_clone,
    "at an odd address": odd_address,
    "out of a transform": escaped,
    "with a tangent": dual,
    "of another dtype": lambda x: x.to(random.Random(x.numel()).choice((*OTHERS, *FLOATS))),
    "of eight bits": lambda x: x.to(torch.float8_e4m3fn),
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
LETHAL: dict[str, Callable[[Tensor], Any]] = {  # to torch itself, and so for the extension alone
    "without memory": freed,
    "endless": lambda x: x.flatten()[:1].expand(2**40),
}
JUNK = (
    None, 3, -1, 2**70, 1.5, "x", "bhsd", b"", [], (), (1, 2), {}, True, torch.float32, Tensor, object(), np.ones(3),
)  # fmt: skip


def hostile(rng: random.Random, x: Tensor, kinds: dict[str, Callable[[Tensor], Any]] = HOSTILE) -> Any:
    with contextlib.suppress(Exception):  # not every tensor can be made so
        return kinds[rng.choice(list(kinds))](x)
    return x


# What tensors of other kinds say while a case is built.
NOT_A_CASE = (AttributeError, IndexError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError)


# ---- Specs and rotations ----


@lru_cache(maxsize=2048)
def spec_of(number: int) -> RotarySpec:
    rng = random.Random(number)
    while True:
        width = rng.choice(WIDTHS) if rng.random() < 0.97 else rng.choice((1022, 1024, 1026, 2048))
        turned = rng.choice([width, width, *(r for r in (2, 4, 16, 30, 32, 64) if r <= width)])
        pairs, interleaved = turned // 2, rng.random() < 0.4
        axes = rng.choice((1, 1, 1, 2)) if pairs > 1 else 1
        halves = (pairs - pairs // 2, pairs // 2)
        try:
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
                angles=rng.choice(("exact", "exact", "exact", "float32", "float64")),
                tables=rng.choice(("activation", "activation", "float32", "rounded", "promoted", "float64")),
            )  # fmt: skip
        except ValueError:
            continue


def positions_of(rng: random.Random, memory: list[Tensor], spec: RotarySpec, batch: Any, seq: int) -> Tensor:
    shape = [*(() if spec.axes.count == 1 else (spec.axes.count,)), *batch, seq]
    dtype = rng.choice((torch.int64, torch.int64, torch.int32))
    x = tensor(rng, memory, shape, dtype)
    if x.numel() and rng.random() < 0.5:
        memory[-1].random_(-(2**31), 2**31 - 1)
    if spec.coordinates == "real" and rng.random() < 0.5:
        return x.double()
    return x


def rotation_of(
    rng: random.Random, memory: list[Tensor], spec: RotarySpec, batch: Any, heads: int, seq: int, dtype: Any
) -> Rotation:
    """By a spec, or any tables."""
    if rng.random() < 0.4:
        at, seq_len = positions_of(rng, memory, spec, batch, seq), rng.choice((None, 40))
        return Rotation.at(spec, at, 40 if spec.length_dependent else seq_len, dtype=dtype)
    per_head, pairs = rng.random() < 0.25, spec.layout.pairs
    shape = [*batch, *((heads,) if per_head else ()), seq, pairs]
    kind = rng.choice((torch.float32, torch.float32, dtype, *FLOATS, torch.float64))
    state = rng.getstate()
    cos = tensor(rng, memory, shape, kind)
    if rng.random() < 0.8:
        rng.setstate(state)  # of the same strides
    sin = tensor(rng, memory, shape, kind)
    if rng.random() < 0.1:
        cos = hostile(rng, cos)
    second = (sin, cos) if rng.random() < 0.03 else None
    layout = spec.layout
    if rng.random() < 0.1 and layout.blocks == 1:
        layout = Layout(**{**vars_of(layout), "permuted": True})
    return Rotation(cos=cos, sin=sin, layout=layout, per_head=per_head, promoted=rng.random() < 0.1, second=second)


def vars_of(layout: Layout) -> dict[str, Any]:
    names = ("head_dim", "rotary_dim", "trailing", "interleaved", "blocks", "permuted")
    return {name: getattr(layout, name) for name in names}


# ---- Calls ----


@dataclass
class Call:
    function: Any
    args: list[Any]
    kwargs: dict[str, Any]
    memory: list[Tensor] = field(default_factory=list)  # of everything that is not new
    around: Any = None
    gradient: bool = False


def shape_of(tensor_format: str, lead: Any, heads: int, seq: int, width: int) -> list[int]:
    if tensor_format == "bhsd":
        return [*lead, heads, seq, width]
    if tensor_format == "bshd":
        return [*lead, seq, heads, width]
    if tensor_format == "sbhd":
        return [seq, (*lead, 1)[0], heads, width]
    return [seq, heads, width]


def outputs(rng: random.Random, memory: list[Tensor], inputs: list[Any]) -> Any:
    """New ones, of any strides, in place, of each other's inputs, or nonsense."""
    made: list[Any] = []
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            made.append(None)
            continue
        often = ("new", "strided", "here")
        kind = rng.choice((*often, *often, *often, "other", "shifted", "hostile", "junk"))
        y: Any = x
        if kind == "new":
            y = torch.zeros(x.shape, dtype=x.dtype)
            memory.append(y)
        elif kind == "strided":
            y = tensor(rng, memory, x.shape, x.dtype)
        elif kind == "other":
            y = inputs[1 - i] if len(inputs) > 1 else x.mT
        elif kind == "shifted":
            y = x[..., 1:]
        elif kind == "hostile":
            y = hostile(rng, torch.zeros(x.shape, dtype=x.dtype))
        elif kind == "junk":
            y = rng.choice(JUNK)
        made.append(y)
    if len(inputs) == 1:
        return made[0]
    return rng.choice((tuple, tuple, tuple, list))(made) if rng.random() < 0.97 else made[0]


def around(rng: random.Random, dtype: torch.dtype) -> Any:
    low = torch.float16 if dtype == torch.float16 else torch.bfloat16  # torch.cat knows no mixture
    if rng.random() < 0.8:
        return contextlib.nullcontext()
    return rng.choice((
        torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", low), Functions, Dispatches,
        forward_ad.dual_level, lambda: torch.autograd.graph.saved_tensors_hooks(Tensor.clone, lambda t: t),
        lambda: torch.autograd.graph.save_on_cpu(), lambda: FAKES, lambda: torch.device("cpu"),
    ))()  # fmt: skip


def some_call(rng: random.Random) -> Call:
    memory: list[Tensor] = []
    spec, tensor_format, dtype = spec_of(rng.randrange(2000)), rng.choice(FORMATS), rng.choice(FLOATS)
    if rng.random() < 0.04:
        dtype = torch.float64
    few = (1, 1, 1, 2, 2, 3) if rng.random() < 0.95 else (0, 1, 2)
    lead = [rng.choice(few) for _ in range(rng.choice((1, 1, 1, 1, 1, 0, 2, 3, 4, 5)))]
    heads, of_k = rng.choice((1, 2, 2, 3, 5, 8)), rng.choice((1, 2, 3))
    seq, width = rng.choice((1, 1, 2, 5, 15, 16, 17, 33)), spec.head_dim
    if rng.random() < 0.05:
        seq, heads, of_k = rng.choice(((0, 1, 2), (5, 0, 1), (20, 1, 0), (0, 0, 0)))
    if math.prod(lead) * heads * seq * width > 2**16:
        lead = [1] * len(lead)
    if rng.random() < 0.003:  # large pages, stores past the cache, several threads
        seq, heads, lead = rng.choice((513, 1024, 1500)), rng.choice((16, 32)), [rng.choice((1, 2))]
    batch = {"thd": [], "sbhd": (*lead, 1)[:1]}.get(tensor_format, lead[-1:])
    per_batch = rng.choice(([], [], batch, [1] * len(batch))) if rng.random() < 0.99 else [7]

    q = tensor(rng, memory, shape_of(tensor_format, lead, heads, seq, width), dtype)
    k: Any = tensor(rng, memory, shape_of(tensor_format, lead, of_k, seq, width), dtype)
    k = rng.choice((k, k, None))
    phases = rng.random() < 0.5
    angles: Any = (
        positions_of(rng, memory, spec, per_batch, seq)
        if phases
        else rotation_of(rng, memory, spec, per_batch, heads, seq, dtype)
    )
    if k is not None and not phases and isinstance(angles, Rotation) and angles.per_head and rng.random() < 0.8:
        k = tensor(rng, memory, q.shape, dtype)
    given: dict[str, Any] = {"tensor_format": tensor_format}
    call = Call(None, [], given, memory, around(rng, dtype))
    if rng.random() < 0.08:
        q = hostile(rng, q)
    if k is not None and rng.random() < 0.08:
        k = hostile(rng, k)
    if phases and rng.random() < 0.08:
        angles = hostile(rng, angles)
    if rng.random() < 0.15:  # wants a gradient
        for x in (q, k):
            if isinstance(x, Tensor) and x.is_leaf and x.is_floating_point() and rng.random() < 0.7:
                with contextlib.suppress(Exception):
                    x.requires_grad_()
        call.gradient = True
    if rng.random() < 0.2 and tensor_format != "bhsd" and isinstance(q, Tensor):
        with contextlib.suppress(Exception):
            q, k, given["num_heads"] = q.flatten(-2), None if k is None else k.flatten(-2), q.shape[-2]
    if not phases and isinstance(q, Tensor) and rng.random() < 0.1:
        return packed_call(rng, call, angles, lead, heads, of_k, seq, width, dtype)
    single = not phases and k is None and rng.random() < 0.7
    if rng.random() < 0.4:
        given["out"] = outputs(rng, memory, [q] if single else [q, k])
    if phases:
        if spec.length_dependent or rng.random() < 0.1:
            given["seq_len"] = rng.choice((1, 40, 40) if rng.random() < 0.9 else (0, -1, "x", 2.0, True))
        if k is not None and rng.random() < 0.15:
            given["k_positions"] = positions_of(rng, memory, spec, per_batch, seq)
        call.function, call.args = rotate, [q, k, angles, spec]
    elif single:
        call.function, call.args = apply_rotary, [q, angles]
    else:
        call.function, call.args = apply_rotary_qk, [q, k, angles]
    if rng.random() < 0.02:
        call.args[rng.randrange(len(call.args))] = rng.choice(JUNK)
    if rng.random() < 0.02:
        given["tensor_format"] = rng.choice(JUNK)
    return call


def packed_call(
    rng: random.Random, call: Call, angles: Any, lead: Any, heads: int, of_k: int, seq: int, width: int, dtype: Any
) -> Call:
    """Queries, keys and values in one tensor."""
    three = rng.random() < 0.5
    shape = [*lead, seq, *((3, heads) if three else (heads + 2 * of_k,)), width]
    qkv = tensor(rng, call.memory, shape, dtype)
    if rng.random() < 0.08:
        qkv = hostile(rng, qkv)
    call.function, call.args, call.kwargs = apply_rotary_qkv, [qkv, angles], {}
    if not three:
        call.kwargs["num_heads"] = heads if rng.random() < 0.95 else rng.choice(JUNK)
    if rng.random() < 0.5:
        call.kwargs["out"] = outputs(rng, call.memory, [qkv])
    return call


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
    if y.dtype.is_floating_point and y.dtype.itemsize > 1:
        y = torch.where(y.isnan(), float("nan"), y if signed else y + 0.0)
    return kind, y.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def outcome(call: Call, kernel: str) -> tuple[Any, Any]:
    """The results, and all memory; or the type of the error."""
    result: Any
    shown: list[Any]
    signed = not any(isinstance(x, Tensor) and x._is_zerotensor() for x in tensors_of(call))
    try:
        with call.around:
            result = call.function(*call.args, **call.kwargs, kernel=kernel)
            result = list(result) if isinstance(result, tuple) else [result]
            results = len(result)
            wanted = [x for x in call.args if isinstance(x, Tensor) and x.requires_grad and x.is_leaf]
            able = [y for y in result if isinstance(y, Tensor) and y.requires_grad]
            if call.gradient and wanted and able:
                up = [torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype) for y in able]
                result += torch.autograd.grad(able, wanted, up, allow_unused=True)
        # gradients are sums, and autograd's have a zero more or less
        shown = [bits(y, signed and i < results) for i, y in enumerate(result)]
    except Exception as error:
        shown = [type(error)]
        if isinstance(error, ValueError) and "kernel='native' cannot rotate these" in str(error):
            shown = ["declined"]
        if "autocast::prioritize" in str(error):  # torch.cat of float16 where autocast is for bfloat16
            shown = ["a limit of torch"]
    return shown, [bits(x, signed) for x in call.memory]


def tensors_of(call: Call) -> list[Any]:
    tables = [table for x in call.args if isinstance(x, Rotation) for table in (x.cos, x.sin)]
    return [*call.args, *tables]


def built(seed: str) -> Call | None:
    """The case of a seed; None if nothing comes of it, as of a rotation whose tables are refused."""
    torch.default_generator.manual_seed(hash_of(seed))
    try:
        return some_call(random.Random(seed))
    except NOT_A_CASE:
        return None


def hash_of(seed: str) -> int:
    return random.Random(seed).getrandbits(60)


def check_call(seed: str, seen: collections.Counter[str]) -> str:
    """What differs, or nothing."""
    if (call := built(seed)) is None:
        seen["not a case"] += 1
        return ""
    expected, memory = outcome(call, "reference")
    for kernel in ("auto", "native"):
        call = built(seed)
        assert call is not None
        got, after = outcome(call, kernel)
        seen["calls"] += 1
        refused = isinstance(expected[0], type)
        if ["a limit of torch"] in (got, expected):
            seen["a limit of torch"] += 1
        elif got == ["declined"]:
            seen["declined"] += 1
            if kernel == "auto":
                return "kernel='auto' declined"
        elif got != expected:
            return f"{kernel}: {shown(got)}, reference: {shown(expected)}; {call.function.__name__} {described(call)}"
        elif after != memory and not refused:
            return f"{kernel}: other memory; {call.function.__name__} {described(call)}"
        else:
            seen["refused by both" if refused else "same bits"] += 1
            if "out" in call.kwargs and not refused:
                seen["same bits, outputs given"] += 1
            if len(got) > 2:
                seen["same bits, with gradients"] += 1
    return ""


def shown(outcome: Any) -> str:
    return str([x[0] if isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], bytes) else x for x in outcome])


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

    return f"{[one(x) for x in call.args]} { {k: one(v) for k, v in call.kwargs.items()} } {type(call.around)}"


# ---- The extension itself ----


def broken_rotation(rng: random.Random, rotation: Rotation) -> Any:
    """One that no constructor made."""
    made = object.__new__(Rotation)
    names = ("cos", "sin", "layout", "per_head", "magnitude", "promoted", "second")
    fields = {name: getattr(rotation, name) for name in names}
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(names)
        if isinstance(fields.get(name), Tensor) and rng.random() < 0.7:
            fields[name] = hostile(rng, fields[name])
        elif name == "layout" and rng.random() < 0.7:
            fields[name] = broken_layout(rng, rotation.layout)
        elif rng.random() < 0.5:
            fields[name] = rng.choice(JUNK)
        else:
            fields.pop(name, None)
    made.__dict__.update(fields)
    return made


def broken_layout(rng: random.Random, layout: Layout) -> Any:
    fields = vars_of(layout)
    fields[rng.choice(list(fields))] = rng.choice((*JUNK, False, 0, 1, 2, 4, 7, 8, 128, 512, 2**31, 2**62))
    for name in ("head_dim", "rotary_dim", "blocks"):  # True is 1
        fields[name] = None if fields[name] is True else fields[name]
    return SimpleNamespace(**fields)


def some_plan(rng: random.Random, spec: RotarySpec) -> Any:
    if rng.random() < 0.7 and (plan := autograd.plan_of(spec.key, 40)) is not None:
        return plan
    pairs = spec.layout.pairs if rng.random() < 0.7 else rng.choice((0, -1, 1, 512, 513, 2**61))
    axes = rng.choice((0, 1, 1, 2, 4))
    steps = struct.pack(f"{max(0, min(pairs, 600)) * axes}q", *range(max(0, min(pairs, 600)) * axes))
    args: list[Any] = [spec.layout, rng.choice((1.0, -1.0)), 1.0, steps[: rng.choice((None, None, -1, 7))], pairs]
    if rng.random() < 0.3:
        args[0] = broken_layout(rng, spec.layout)
    if rng.random() < 0.2:
        args[rng.randrange(5)] = rng.choice(JUNK)
    return native._native.plan(*args), spec, None


def raw_call(seed: str) -> tuple[Any, list[Any], Any] | None:
    """A function of the extension, its arguments, and whether memory of outputs is at stake."""
    rng = random.Random(seed)
    torch.default_generator.manual_seed(hash_of(seed))
    memory: list[Tensor] = []
    extension = native._native
    spec, tensor_format, dtype = spec_of(rng.randrange(2000)), rng.choice(FORMATS), rng.choice(FLOATS)
    lead = [rng.choice((1, 2))] * rng.choice((1, 1, 1, 0, 2, 4, 5))
    heads, seq = rng.choice((1, 2, 3)), rng.choice((0, 1, 5, 17, 40))
    kind = rng.choice(("apply", "rotate", "rotate", "plan", "use"))
    try:
        if kind == "use":
            return extension.use, [rng.choice((*JUNK, "", "", "avx512", "avx2", "portable", "neon", "\ud800"))], None
        if kind == "plan":
            return (lambda: some_plan(rng, spec)), [], None
        q: Any = tensor(rng, memory, shape_of(tensor_format, lead, heads, seq, spec.head_dim), dtype)
        k: Any = tensor(rng, memory, q.shape, dtype)
        k = rng.choice((k, None))
        y: Any = rng.choice((None, None, torch.zeros(q.shape, dtype=dtype)))
        z: Any = None if y is None or k is None else torch.zeros(q.shape, dtype=dtype)
        per_batch = rng.choice(([], [], lead[-1:], [1])) if tensor_format in ("bhsd", "bshd") else []
        outputs = None if y is None else (y, z)
        args = [q, k, None, tensor_format, rng.random() < 0.3, None, outputs, None]
        if kind == "apply":
            args[2] = rotation_of(rng, memory, spec, per_batch, heads, seq, dtype)
            if rng.random() < 0.3:
                args[2] = broken_rotation(rng, args[2])
        else:
            args[2] = positions_of(rng, memory, spec, per_batch, seq)
            args.append(some_plan(rng, spec))
        for at in rng.sample(range(len(args)), rng.choice((0, 0, 1, 1, 2))):
            if isinstance(args[at], Tensor) and rng.random() < 0.7:
                args[at] = hostile(rng, args[at], HOSTILE | LETHAL)
            else:
                args[at] = rng.choice(JUNK)
        if rng.random() < 0.05:
            args = args[: rng.randrange(len(args))] if rng.random() < 0.5 else [*args, *args]
    except NOT_A_CASE:
        return None
    return getattr(extension, kind), args, kind


def check_raw(seed: str, seen: collections.Counter[str]) -> str:
    """Whatever it is given, it returns None, refuses, or has the bits of the reference."""
    made = raw_call(seed)
    if made is None:
        seen["not a case"] += 1
        return ""
    function, args, kind = made
    seen["calls"] += 1
    try:
        got = function(*args)
    except (TypeError, ValueError, OverflowError, MemoryError, RuntimeError) as error:
        if isinstance(error, SystemError) or sys.exc_info()[0] is SystemError:
            return f"{kind}: {error!r}"
        seen["raw: refused"] += 1
        return ""
    except Exception as error:
        return f"{kind}: {error!r}"
    finally:
        native._native.use(None)
    if got is None or kind is None:
        seen["raw: declined" if got is None else "raw: plans and sets"] += 1
        return ""
    again = raw_call(seed)
    assert again is not None
    q, k, angles, tensor_format, transposed, *_ = again[1]
    try:
        if kind == "rotate":
            plan = again[1][8]
            angles = Rotation.at(plan[1], angles, 40) if plan is autograd.plan_of(plan[1].key, 40) else None
        if angles is None:  # a plan of other steps, which nothing else knows
            seen["raw: unknown steps"] += 1
            return ""
        if isinstance(angles.layout, SimpleNamespace):
            angles = angles.replace(magnitude=1.0, layout=Layout(**vars(angles.layout)))
        if transposed is True:
            angles = angles.replace(magnitude=1.0, layout=angles.layout).transpose()
        expected = apply_rotary_qk(q, k, angles, tensor_format=tensor_format, kernel="reference")
    except Exception as error:
        return f"{kind} gave a result, and the reference {error!r}: {described(Call(None, args, {}))}"
    if any(x is not None and overlaps_itself(x) for x in got):  # which the checks of outputs refuse
        seen["raw: outputs that overlap"] += 1
        return ""
    got, expected = ([None if x is None else x.detach() for x in pair] for pair in (got, expected))
    if [bits(x) for x in got] != [bits(x) for x in expected]:
        return f"{kind}: {shown([bits(x) for x in got])}, reference {shown([bits(x) for x in expected])}"
    seen["raw: same bits"] += 1
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="SEED:NUMBER of one case")
    parser.add_argument("--trace", help="a file that has the case at work, for a crash")
    given = parser.parse_args()
    assert native._native is not None, native.MISSING
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # of fake tensors
    faulthandler.enable()
    sets = [name for name in ("avx512", "avx2", "neon", "portable") if has(name)]
    seen: collections.Counter[str] = collections.Counter()
    begun, number, wrong = time.monotonic(), 0, 0
    trace = open(given.trace, "w") if given.trace else None  # noqa: SIM115
    while time.monotonic() < begun + 60 * given.minutes:
        seed = given.case or f"{given.seed}:{number}"
        if trace:
            trace.seek(0)
            trace.write(f"{seed}\n")
            trace.flush()
        choice = random.Random(f"set of {seed}")
        native._native.use(choice.choice(sets))
        torch.set_num_threads(2 if choice.random() < 0.05 else 1)
        difference = (check_raw if choice.random() < 0.3 else check_call)(seed, seen)
        if difference:
            wrong += 1
            print(f"{seed}: {difference}", flush=True)
        number += 1
        if given.case or wrong == 20:
            break
    print(f"{number} cases in {time.monotonic() - begun:.0f} s, {wrong} wrong:", dict(sorted(seen.items())))
    return wrong > 0


def has(name: str) -> bool:
    try:
        return bool(native._native.use(name))
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
