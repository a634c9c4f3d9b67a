"""Caches written after a norm, caches of float8, and MLA's rows: against one head at a time, in float64."""

import math
import random
from itertools import pairwise

import pytest
import torch
from torch._subclasses import FakeTensorMode

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.caches import apply_rotary_to_cache, apply_rotary_to_latent_cache
from refused import refused

FLOAT8 = torch.float8_e4m3fn
ROUNDINGS = ["once", "between", "before_weight"]

# Every number of float8 e4m3fn that is not negative, by its definition (Micikevicius et al. 2022, table 1).
NUMBERS = [m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]


def nearest(x: float) -> int:
    """The byte of the number nearest to x, the even one of two; what is beyond the last is the last."""
    if math.isnan(x):
        return 0x7F
    size = min(abs(x), NUMBERS[-1])
    at = min(range(127), key=lambda i: (abs(NUMBERS[i] - size), i % 2))
    return at | (0x80 if math.copysign(1, x) < 0 else 0)


def bytes_of(x, scale):
    """``x / scale`` as bytes, number by number; the quotient is that of float32."""
    quotient = (x.float() / scale).double()
    return torch.tensor([nearest(v) for v in quotient.flatten().tolist()], dtype=torch.uint8).view(x.shape)


def test_numbers_of_float8_are_nearest_to_what_they_hold():
    """Halves between two neighbours, what is too small and too large, zeros of both signs, NaN, and random numbers."""
    from phasor.rotary.kernels.cache import float8

    halves = [(a + b) / 2 for a, b in pairwise(NUMBERS)]
    edges = [*NUMBERS, *halves, 464.0, 480.0, 1e30, math.inf, math.nan, 1e-30]
    x = torch.tensor([*edges, *(-v for v in edges)])
    x = torch.cat((x, torch.randn(2000) * 10 ** (torch.rand(2000) * 6 - 4)))
    x = torch.cat((x, torch.nextafter(x, torch.tensor(math.inf)), torch.nextafter(x, torch.tensor(-math.inf))))
    got = float8(x, torch.tensor(1.0)).view(torch.uint8)
    expected = bytes_of(x, 1.0)
    assert torch.equal(torch.where(x.isnan(), 0x7F, got), torch.where(x.isnan(), 0x7F, expected))


def a_call(rng, dtype, heads=(4, 2), width=32, tokens=6, **layout):
    """q, k, v, their rotation and slots, one of them -1."""
    spec = RotarySpec(head_dim=width, **layout)
    q, k, v = (torch.randn(tokens, h, width).to(dtype) for h in (*heads, heads[1]))
    slots = torch.tensor([*rng.sample(range(2 * tokens), tokens - 1), -1])
    return q, k, v, Rotation.at(spec, torch.randint(0, 1000, (tokens,))), slots


LAYOUTS = [{}, {"interleaved": True}, {"rotary_dim": 16}, {"interleaved": True, "permuted": True}]


def test_a_scale_made_while_a_compiler_traces_is_no_scale_of_a_later_call():
    """1 / 0.03125 is 32: with fake tensors, as torch.export calls it, and then for real."""

    def written():
        rotation, slots, x = Rotation.at(RotarySpec(head_dim=8), torch.arange(1)), torch.arange(1), torch.ones(1, 1, 8)
        k_cache, v_cache = (torch.zeros(1, 1, 1, 8, dtype=torch.uint8).view(FLOAT8) for _ in range(2))
        about = {"k_scale": 0.03125, "v_scale": 0.03125, "tensor_format": "thd", "kernel": "reference"}
        apply_rotary_to_cache(x, x, x, rotation, k_cache, v_cache, slots, **about)
        return k_cache, v_cache

    with FakeTensorMode():
        written()
    for cache in written():
        assert cache.float().flatten().tolist() == [32.0] * 8


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_float8_after_a_norm(rounding):
    """Of the float64 norm at most one step apart, where the sum of squares tips a rounding, and rarely."""
    rng = random.Random(rounding)
    q, k, v, rotation, slots = a_call(rng, torch.bfloat16, width=64, tokens=20)
    weight = torch.randn(64).bfloat16()
    caches = [torch.zeros(2, 20, 2, 64, dtype=torch.uint8) for _ in range(2)]
    apply_rotary_to_cache(
        q, k, v, rotation, *(c.view(FLOAT8) for c in caches), slots, k_scale=0.01, v_scale=1.0, q_weight=weight,
        k_weight=weight, eps=1e-6, rounding=rounding, tensor_format="thd", kernel="reference",
    )  # fmt: skip
    normed = k.double() / (k.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    if rounding == "before_weight":
        normed = normed.bfloat16().double()
    normed = normed * weight.double()
    normed = (normed if rounding == "once" else normed.bfloat16()).float()
    z = apply_rotary(normed, rotation, tensor_format="thd", kernel="reference")
    keep = slots >= 0
    got, expected = caches[0].view(40, 2, 64)[slots[keep]].int(), bytes_of(z[keep], 0.01).int()
    assert ((got - expected).abs() <= 1).all() and (got == expected).float().mean() >= 0.99


def mla_call(tensor_format="thd", dtype=torch.bfloat16, heads=3, rank=32, tokens=6):
    """DeepSeek's shapes in small: interleaved, written back as halves, the rotary part a view of the whole heads."""
    spec = RotarySpec(head_dim=16, interleaved=True, permuted=True)
    batch = () if tensor_format == "thd" else (2,)
    rotation = Rotation.at(spec, torch.randint(0, 1000, (*batch, tokens)))
    q = torch.randn(*batch, tokens, heads, 40).to(dtype)[..., 24:]
    k, latent = torch.randn(*batch, tokens, 1, 16).to(dtype), torch.randn(*batch, tokens, rank).to(dtype)
    return q, k, latent, rotation


@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("tensor_format", ["bhsd", "bshd", "sbhd", "thd"])
def test_rows_of_mla(tensor_format, float8):
    """vLLM's `concat_and_cache_mla` (csrc/cache_kernels.cu): the latent first, then the rotated key."""
    q, k, latent, rotation = mla_call(tensor_format)
    weight, count = torch.randn(32).bfloat16(), latent.shape[:-1].numel()
    slots = torch.randperm(2 * count)[:count].view(latent.shape[:-1])
    slots.view(-1)[1] = -1
    cache = (
        torch.zeros(2, count, 48, dtype=torch.uint8).view(FLOAT8) if float8 else torch.zeros(2, count, 48).bfloat16()
    )
    axes = {"bhsd": (0, 2, 1, 3), "sbhd": (1, 0, 2, 3)}.get(tensor_format, tuple(range(q.ndim)))
    rows = latent.transpose(0, 1) if tensor_format == "sbhd" else latent
    y = apply_rotary_to_latent_cache(
        q.permute(axes), k.permute(axes), rows, rotation, cache, slots, latent_weight=weight, eps=1e-6,
        rounding="before_weight", scale=0.02 if float8 else None, tensor_format=tensor_format, kernel="reference",
    )  # fmt: skip
    assert torch.equal(y, apply_rotary(q.permute(axes), rotation, tensor_format=tensor_format))
    exact = latent.double() / (latent.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    normed = (exact.bfloat16() * weight.float()).bfloat16()
    z = apply_rotary(k.float(), rotation, tensor_format="thd" if k.ndim == 3 else "bshd", kernel="reference").squeeze(
        -2
    )
    expected = torch.zeros(2 * count, 48)
    for row, slot in enumerate(slots.flatten().tolist()):
        if slot >= 0:
            expected[slot] = torch.cat((normed.flatten(0, -2)[row].float(), z.flatten(0, -2)[row]))
    if float8:
        expected, got = bytes_of(expected, 0.02).int(), cache.view(torch.uint8).view(2 * count, 48).int()
        assert torch.equal(got[:, 32:], expected[:, 32:])
        assert ((got - expected).abs() <= 1).all() and (got == expected).float().mean() >= 0.99
    else:
        got = cache.view(2 * count, 48)
        assert torch.equal(got[:, 32:], expected[:, 32:].bfloat16())
        assert (got == expected.bfloat16()).float().mean() >= 0.99
        torch.testing.assert_close(got.float(), expected, rtol=2**-7, atol=0)


Q, K, V, ROTATION, SLOTS = a_call(random.Random(0), torch.float32)
CACHE = torch.zeros(4, 3, 2, 32)
EIGHT = CACHE.to(FLOAT8)
WEIGHT = torch.ones(32)
WIDE = Rotation.at(RotarySpec(head_dim=32), torch.arange(6), dtype=torch.float64)


def write(**changes):
    """Whatever is refused, nothing is written."""
    given = {
        "q": Q, "k": K, "v": V, "rotation": ROTATION, "k_cache": CACHE, "v_cache": CACHE.clone(), "slot_mapping": SLOTS,
    }  # fmt: skip
    try:
        apply_rotary_to_cache(**given | changes, tensor_format="thd")
    finally:
        assert not CACHE.any() and not EIGHT.view(torch.uint8).any()


MISTAKES = """
k_cache=EIGHT => k_scale must be given for a cache of torch.float8_e4m3fn: … (1.0 if … got None
k_scale=1.0 => k_scale must be None, except for a cache of torch.float8_e4m3fn, got one for torch.float32
k_cache=EIGHT, k_scale=0.0 => k_scale must be a finite number above 0, got 0.0
k_cache=EIGHT, k_scale=torch.tensor([1.0, -1.0]) => k_scale must be finite and above 0, got [1.0, -1
k_cache=EIGHT, k_scale=torch.ones(3) => one for each head [2], got torch.float32 (3,)
k_cache=EIGHT, k_scale=torch.ones(2).double() => k_scale must be … got torch.float64 (2,)
k_cache=EIGHT, k_scale=torch.ones(2, device='meta') => must be on the same device, got meta and cpu
k_cache=EIGHT, k_scale=torch.ones(2).requires_grad_() => k_scale must need no gradient
k_cache=EIGHT.view(torch.uint8) => torch.uint8 on cpu; float8 kept as bytes: k_cache.view(torch.float8
k_cache=CACHE.to(torch.float8_e5m2) => k_cache must be float64, float32, float16 or bfloat16, got
q_weight=WEIGHT => eps must be given with q_weight
eps=-1.0 => eps must be a finite number of at least 0, got -1.0
eps=1e-06, q_weight=WEIGHT => q_weight and k_weight must both be tensors or both be None
eps=1e-06, q_weight=WEIGHT, k_weight=WEIGHT[:8] => k_weight must be a tensor [32] of floats
eps=1e-06, q_weight=WEIGHT[:8], k_weight=WEIGHT => q_weight must be a tensor [32] of floats
eps=1e-06, rounding='twice' => rounding must be 'once', 'between' or 'before_weight', got 'twice'
eps=1e-06, q_weight=WEIGHT, k_weight=WEIGHT.clone().requires_grad_() => weights and caches must need no gradient
q=Q.double(), k=K.double(), v=V.double(), rotation=WIDE, k_cache=EIGHT, v_cache=EIGHT.clone(), k_scale=1.0, v_scale=1.0
    => k_cache must be torch.float64 on cpu, as what is written, got torch.float8_e4
"""
test_mistakes = refused(MISTAKES, globals(), "write({})")
test_mistakes_by_name = refused(MISTAKES, globals(), "write({}, kernel='reference')")


def write_row(**changes):
    q, k, latent, rotation = mla_call()
    cache = torch.zeros(2, 6, 48).bfloat16()
    given = {
        "q": q, "k": k, "latent": latent, "rotation": rotation, "cache": cache, "slot_mapping": torch.arange(6),
    }  # fmt: skip
    try:
        apply_rotary_to_latent_cache(**given | changes, tensor_format="thd")
    finally:
        assert not cache.any()


ROW_MISTAKES = """
k=torch.randn(6, 2, 16).bfloat16() => k must have one head, which all heads of q share, got 2
latent=torch.randn(5, 32).bfloat16() => latent must be torch.bfloat16 [6] and its channels, on cpu
latent=torch.randn(6, 32) => latent must be torch.bfloat16 … got torch.float32 [6, 32] on cpu
cache=torch.zeros(2, 6, 47).bfloat16() => cache must be [blocks, block_size, 48], 32 of the latent and
cache=torch.zeros(2, 6, 48) => cache must be torch.bfloat16 or torch.float8_e4m3fn on cpu, as what is
cache=torch.zeros(2, 6, 48, dtype=torch.uint8) => float8 kept as bytes
cache=torch.zeros(2, 6, 48).to(FLOAT8) => scale must be given for a cache of torch.float8_e4m3fn
latent_weight=torch.ones(32) => eps must be given with latent_weight
latent_weight=torch.ones(8), eps=1e-06 => latent_weight must be a tensor [32] of floats
slot_mapping=torch.tensor([0, 1, 2, 3, 4, 12]) => from 0 to 11 (2 blocks of 6), got 12
"""
test_mistakes_about_rows_of_mla = refused(ROW_MISTAKES, globals(), "write_row({})")
