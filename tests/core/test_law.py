"""The law of kernels on a sample of calls, and on the edges: bits of the reference, gradients too, or both refuse.

What is drawn, and what is compared, is in `tests/calls.py`; ``make fuzz`` draws for ten minutes.
"""

import itertools
import logging

import pytest
import torch

from calls import EAGER, Call, built, check, native_ways, odd_address, of_inference, outcome
from phasor import Layout, RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary, apply_rotary_qk, rotate
from phasor.caches import apply_rotary_to_cache
from phasor.rotary import kernels
from phasor.rotary.apply import cached, calls, normed, packed
from phasor.rotary.axes import Axial

from .conftest import sets

WAYS = native_ways(sets()) | EAGER
KINDS = ("tables", "phases", "packed", "norm", "cache", "latent", "move")
pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, of tensors that it calls prototypes


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, whatever ``--kernel`` says."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.ERROR)  # of fake tensors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_good_calls(kind, part):
    for number in range(60 * part, 60 * part + 60):
        wrong = check(lambda n=number: built(f"good {n}", kind, bad=False), WAYS)
        assert not wrong, f"built('good {number}', {kind!r}, bad=False): {wrong}"


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3, 4, 5))])
def test_calls_of_every_kind(part):
    """Tensors that are not what they seem, modes and transforms, outputs in each other's way, nonsense."""
    for number in range(100 * part, 100 * part + 100):
        wrong = check(lambda n=number: built(f"1:{n}"), WAYS)
        assert not wrong, f"built('1:{number}'): {wrong}"


@pytest.mark.skipif(not kernels.native.OPEN, reason="the native kernel was not built")
@pytest.mark.parametrize("kind, most", {"tables": 57, "phases": 52, "packed": 42, "norm": 59, "cache": 61}.items())
def test_plain_calls_take_the_short_way(kind, most, monkeypatch):
    """So many of a hundred never come to the checks in Python; the others are wide, or lie as no stride describes."""
    long = []
    for place in (calls, normed, cached, packed):
        for name in ("check_angles", "check_tensor"):
            own = getattr(place, name, None)
            monkeypatch.setattr(place, name, lambda *given, own=own: (long.append(given), own(*given)), raising=False)
    short = 0
    for number in range(100):
        long.clear()
        if (call := built(f"short {number}", kind, bad=False)) and not outcome(call, "auto").error:
            short += not long
    assert short >= most


# ---- Edges that chance seldom finds: each a call, built anew, and the reason why it is here ----

SPEC = RotarySpec(head_dim=64, rotary_dim=48)
PERMUTED = RotarySpec(head_dim=64, interleaved=True, permuted=True)


def tensors(*shapes, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def of_worst_numbers(dtype, device="cpu"):
    """Rounding to bfloat16 could carry the payload of a NaN over to zero; subnormal numbers keep their bits."""
    worst = torch.tensor([0x7FFFFFFF, -1, 0x7F800001, 0x7F800000], dtype=torch.int32).view(torch.float32)
    x, cos, sin = tensors((1, 2, 4, 64), (4, 32), (4, 32), dtype=torch.float32)
    cos[:, 0], sin[:, 17], x = worst, worst, x.to(dtype)
    x[0, 1, 2, 3], x[0, 0, 1, 5], x[0, 0, 0, 9] = float("nan"), float("inf"), torch.finfo(dtype).max
    x[0, 1, 1] = (x[0, 0, 2].double() * torch.finfo(dtype).tiny).to(dtype)
    return Call(apply_rotary, [x.to(device), Rotation(cos=cos, sin=sin, layout=Layout(head_dim=64)).to(device)], {})


def normed_nan(rounding):
    """A weight that is no number, with a payload, after a norm whose mean is none either."""
    (q, weight), rotation = tensors((1, 2, 4, 64), (64,)), Rotation.at(RotarySpec(head_dim=64), torch.arange(4))
    q[0, 1, 2, 3], q[0, 0, 1, 5], weight = float("nan"), float("inf"), weight.float()
    weight[7] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    return Call(apply_qk_norm_rotary, [q, None, rotation, weight, None], {"rounding": rounding, "eps": 1e-6})


def back_through_a_norm(back):
    """What is differentiated again, or by many gradients at once, goes back through the plain expression."""
    rotation, inputs = Rotation.at(RotarySpec(head_dim=8), torch.arange(3)), tensors((1, 2, 3, 8), (8,))
    q, weight = (x.float().requires_grad_() for x in inputs)
    return Call(apply_qk_norm_rotary, [q, None, rotation, weight, None], {"eps": 1e-6}, back=back)


def in_one_projection():
    """q and k in turns in one tensor: their stretches of memory meet, and no element is shared."""
    (qkv,) = tensors((2, 7, 6, 64))
    q, k = qkv[:, :, :3], qkv[:, :, 3:5]
    given = {"tensor_format": "bshd", "out": (q, k)}
    return Call(apply_rotary_qk, [q, k, Rotation.at(SPEC, torch.arange(7))], given, [qkv])


def in_place_through_another_view():
    """Along an axis of size 1 nobody goes, so its stride makes no other memory of it."""
    (x,) = tensors((1, 3, 7, 64))
    out = x.as_strided(x.shape, (1, *x.stride()[1:]))
    return Call(apply_rotary, [x, Rotation.at(PERMUTED, torch.arange(7))], {"out": out}, [x])


def large(spec, dtype, back=""):
    """Past the sizes of one block of the eager kernel, of large pages, of stores past the cache, of several threads."""
    q, k = tensors((2, 16, 1031, spec.head_dim), (2, 4, 1031, spec.head_dim), dtype=dtype)
    q.requires_grad_(bool(back))
    return Call(rotate, [q, k, torch.arange(1031), spec], {}, back=back)


def in_place_of_a_large_one(spec):
    q, k = tensors((1, 8, 1031, 64), (1, 2, 1031, 64))
    return Call(apply_rotary_qk, [q, k, Rotation.at(spec, torch.arange(1031))], {"out": (q, k)}, [q, k])


def blocks_that_stand_alike():
    """Tokens of one tile that share cos and sin, in blocks that end inside a tile; on another axis they differ."""
    spec = RotarySpec(head_dim=8, axes=Axial((2, 2)))
    still = torch.tensor([3, -70_000, 5, 2**30]).repeat_interleave(torch.tensor([100, 300, 1, 36]))
    (x,) = tensors((2, 437, 8), dtype=torch.float32)
    return Call(rotate, [x, None, torch.stack((still, still.clone().index_fill(0, torch.tensor([50]), 9))), spec], {})


def where_only_one_can_be_taken(odd):
    """An odd address is left to others: what is turned already is not turned again with the other."""
    q, k = tensors((1, 2, 5, 64), (1, 2, 5, 64))
    q, k = (odd_address(q), k) if odd == "q" else (q, odd_address(k))
    return Call(apply_rotary_qk, [q, k, Rotation.at(SPEC, torch.arange(5))], {"out": (q, k)}, [q, k])


def without_heads(which):
    shapes = ((1, 2, 50, 64), (1, 0, 50, 64))
    q, k = tensors(*(shapes if which == "k" else shapes[::-1]))
    return Call(apply_rotary_qk, [q, k, Rotation.at(SPEC, torch.arange(50))], {})


def an_image():
    """The channels of images in memory, of which torch keeps the order."""
    (x,) = tensors((2, 3, 7, 64))
    rotation = Rotation.at(SPEC, torch.arange(7))
    return Call(apply_rotary, [x.to(memory_format=torch.channels_last), rotation], {})


def tables_of_a_row_each(tensor_format):
    """A batch of positions in front of a batch behind the tokens, and angles of its own for every head."""
    shape = {"bhsd": (2, 3, 7, 64), "bshd": (2, 7, 3, 64), "sbhd": (7, 2, 3, 64)}[tensor_format]
    (x,) = tensors(shape, dtype=torch.float32)
    rotation = Rotation.from_angles(tensors((2, 3, 7, 24), dtype=torch.float32)[0], per_head=True, head_dim=64)
    return Call(apply_rotary, [x, rotation], {"tensor_format": tensor_format})


def float8_of_many_heads():
    """More heads than are formed at once, each with a scale of its own."""
    q, k = tensors((3, 2, 64), (3, 20, 64))
    caches = [torch.zeros(1, 4, 20, 64).to(torch.float8_e4m3fn) for _ in range(2)]
    scales = {"k_scale": torch.linspace(0.01, 1, 20), "v_scale": torch.linspace(1, 0.01, 20)}
    given = {"tensor_format": "thd", **scales}
    rotation, slots = Rotation.at(SPEC, torch.arange(3)), torch.tensor([2, -1, 0])
    return Call(apply_rotary_to_cache, [q, k, k.clone(), rotation, *caches, slots], given, caches)


# What may not be written: (q, k, the cosines that rotate them) -> out
WRONG_OUTPUTS = {
    "another dtype": lambda q, k, cos: (q.float(), k),
    "another shape": lambda q, k, cos: (q[..., :8], k),
    "itself in part": lambda q, k, cos: (q, k[:, :, :1].expand_as(k)),
    "each other": lambda q, k, cos: (k, q),
    "one for both": lambda q, k, cos: (y := torch.zeros_like(q), y),
    "the end of q for k": lambda q, k, cos: (y := q.new_zeros(2, *q.shape), y.view(-1)[8 : 8 + k.numel()].view_as(k)),
    "q, a step further": lambda q, k, cos: (q.as_strided(q.shape, q.stride(), q.storage_offset() + 1), k),
    "the cosines": lambda q, k, cos: (q, cos.view(torch.bfloat16).view_as(k)),
    "inference mode": lambda q, k, cos: (q, of_inference(k)),
    "a lazy sign": lambda q, k, cos: (torch._neg_view(q.clone()), k),
}


def written_wrongly(function, change):
    (memory,), (k, weight) = tensors((513 * 64,)), tensors((1, 2, 256, 64), (64,))
    q, cos = memory[: 512 * 64].view(1, 2, 256, 64), torch.ones(256, 64)
    rotation = Rotation(cos=cos[:, :24], sin=torch.zeros(256, 64)[:, :24], layout=SPEC.layout)
    weights = [weight, weight] if function is apply_qk_norm_rotary else []
    out = change(q, k, cos)
    return Call(function, [q, k, rotation, *weights], {"out": out}, [memory, k, cos])


EDGES = {
    **{
        f"out is {name}, {f.__name__}": lambda f=f, change=change: written_wrongly(f, change)
        for name, change in WRONG_OUTPUTS.items()
        for f in (apply_rotary_qk, apply_qk_norm_rotary)
    },
    **{f"worst numbers, {d}": lambda d=d: of_worst_numbers(d) for d in (torch.float32, torch.bfloat16, torch.float16)},
    **{f"no number in a norm, {r}": lambda r=r: normed_nan(r) for r in ("once", "between", "before_weight")},
    **{f"a norm, back {how}": lambda how=how: back_through_a_norm(how) for how in ("once", "twice", "many")},
    "one projection": in_one_projection,
    "another view": in_place_through_another_view,
    "blocks that stand alike": blocks_that_stand_alike,
    **{f"odd address of {x}": lambda x=x: where_only_one_can_be_taken(x) for x in "qk"},
    **{f"no heads of {x}": lambda x=x: without_heads(x) for x in "qk"},
    "an image": an_image,
    "float8 of many heads": float8_of_many_heads,
    **{f"rows of their own, {f}": lambda f=f: tables_of_a_row_each(f) for f in ("bhsd", "bshd", "sbhd")},
    **{
        f"large, {name}, {dtype}": lambda spec=spec, dtype=dtype: large(spec, dtype)
        for (name, spec), dtype in itertools.product(
            {"halves": RotarySpec(head_dim=64), "interleaved": RotarySpec(head_dim=64, interleaved=True)}.items(),
            (torch.float32, torch.bfloat16),
        )
    },
    "large, partial, there and back": lambda: large(SPEC, torch.float16, "once"),
    "large, in place": lambda: in_place_of_a_large_one(SPEC),
    "large, permuted, in place": lambda: in_place_of_a_large_one(PERMUTED),
}


@pytest.mark.parametrize("build", EDGES.values(), ids=EDGES)
def test_edges(build):
    assert not (wrong := check(build, WAYS)), wrong
