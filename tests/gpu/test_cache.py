"""Keys rotated into a cache by the Triton kernel: the bits of the plain expression, and nothing beside the slots."""

import random

import pytest
import torch

from core.test_cache_write import a_cache, slots_of
from phasor import RotarySpec, Rotation
from phasor.caches import apply_rotary_to_cache, apply_rotary_to_latent_cache

from .conftest import DEVICE
from .test_bits import a_case

pytestmark = pytest.mark.usefixtures("few_programs")


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 6))])
def test_the_plain_expression_in_every_layout(seed):
    """Pages and contiguous caches of both orders, with gaps, of v with channels of its own, slots of -1 among them."""
    rng = random.Random(seed)
    for _ in range(5):
        spec, positions, q, k, tensor_format = a_case(rng)
        rotation, kv_layout = Rotation.at(spec, positions, dtype=q.dtype), rng.choice(["NHD", "HND"])
        v = torch.randn(*k.shape[:-1], rng.choice([k.shape[-1], 24]), device=DEVICE).to(k.dtype)
        tokens, heads = {"bhsd": (-2, -3), "bshd": (-3, -2), "sbhd": (0, -2), "thd": (0, -2)}[tensor_format]
        batch = {"sbhd": (k.shape[1],), "thd": ()}.get(tensor_format, k.shape[:-3])
        shape = (*batch, k.shape[tokens])
        count, block_size = torch.Size(shape).numel(), rng.choice([1, 3, 16])
        blocks = count // block_size + 2
        slots = slots_of(rng, count, blocks * block_size).view(shape).to(DEVICE)
        sizes = (blocks, block_size, k.shape[heads])
        dtypes = (torch.promote_types(k.dtype, rotation.cos.dtype) if rotation.promoted else k.dtype, k.dtype)
        caches = [
            a_cache(rng, *sizes, x.shape[-1], kv_layout, dtype).to(DEVICE)
            for x, dtype in zip((k, v), dtypes, strict=True)
        ]
        about = {"kv_layout": kv_layout, "tensor_format": tensor_format}
        found = []
        for kernel in ("triton", "reference"):
            written, versions = [c.clone() for c in caches], [0, 0]
            versions = [c._version for c in written]
            y = apply_rotary_to_cache(q, k, v, rotation, *written, slots, kernel=kernel, **about)
            assert all(c._version > before for c, before in zip(written, versions, strict=True))
            found.append((y, *written))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("permuted", [False, True])
def test_queries_in_place_and_slots_that_are_none(permuted):
    """Values of slots are not looked at on a GPU: what is beyond the cache is written nowhere."""
    rotation = Rotation.at(RotarySpec(head_dim=16, interleaved=True, permuted=permuted), torch.arange(4, device=DEVICE))
    q, k = (torch.randn(4, h, 16, device=DEVICE) for h in (9, 2))
    caches = [torch.zeros(2, 3, 2, 16, device=DEVICE) for _ in range(2)]
    slots = torch.tensor([5, -1, 0, 3], device=DEVICE)
    expected = apply_rotary_to_cache(
        q, k, k, rotation, *(c.clone() for c in caches), slots, tensor_format="thd", kernel="reference"
    )
    at = q.data_ptr()
    y = apply_rotary_to_cache(q, k, k, rotation, *caches, slots, tensor_format="thd", kernel="triton", out=q)
    assert y.data_ptr() == at and torch.equal(y, expected)
    assert torch.equal(caches[1].flatten(0, 1)[[5, 0, 3]], k[[0, 2, 3]])

    from phasor.rotary.kernels.cache import Cache
    from phasor.rotary.kernels.order import ORDERS
    from phasor.rotary.kernels.triton.cache_write import rotate_into_cache

    around = torch.zeros(4, 3, 2, 16, device=DEVICE)
    beyond = Cache(around[1:3], around[1:3].clone(), torch.tensor([6, -2, 7, 2**40], device=DEVICE))
    rotate_into_cache(q, k, k, torch.empty_like(q), rotation, ORDERS["thd"], beyond, False)
    assert not around.any()


FORMS = {  # layout, dtype, how it rounds and its weights' offset, scales for each head
    "interleaved": ({"interleaved": True}, torch.bfloat16, None, False),
    "partial": ({"rotary_dim": 8}, torch.float16, "between", True),
    "permuted": ({"interleaved": True, "permuted": True}, torch.float32, "once", False),
    "halves": ({}, torch.bfloat16, "before_weight", True),
}


def bytes_apart(a, b):
    """By how many numbers of float8 two caches differ at most, and how often."""
    a, b = (x.view(torch.uint8).int() for x in (a, b))
    return (a - b).abs().max().item(), (a != b).float().mean().item()


@pytest.mark.parametrize("layout, dtype, rounding, each", FORMS.values(), ids=FORMS)
def test_a_norm_and_float8(layout, dtype, rounding, each):
    """The bytes of the plain expression; after a norm but where the order of a sum tips a rounding, by one number."""
    rotation = Rotation.at(RotarySpec(head_dim=16, **layout), torch.randint(0, 2**20, (7,), device=DEVICE))
    q, k, v = (torch.randn(7, h, 16, device=DEVICE).to(dtype) for h in (3, 2, 2))
    norm = {}
    if rounding is not None:
        weight = torch.randn(2, 16, device=DEVICE).to(dtype)
        norm = {"eps": 1e-3, "q_weight": weight[0], "k_weight": weight[1], "rounding": rounding, "unit_offset": each}
    scales = {"k_scale": torch.tensor([0.02, 0.5], device=DEVICE) if each else 0.01, "v_scale": 0.25}
    slots, found = torch.tensor([9, 3, -1, 4, 11, 0, 7], device=DEVICE), []
    for kernel in ("triton", "reference"):
        caches = [torch.zeros(3, 4, 2, 16, device=DEVICE).to(torch.float8_e4m3fn) for _ in range(2)]
        about = {"tensor_format": "thd", "kernel": kernel, **scales, **norm}
        y = apply_rotary_to_cache(q, k, v, rotation, *caches, slots, **about)
        found.append((y, *caches))
    (y, *caches), (expected, *others) = found
    assert bytes_apart(caches[1], others[1]) == (0, 0)
    if rounding is None:
        assert torch.equal(y, expected) and bytes_apart(caches[0], others[0]) == (0, 0)
    else:
        most, often = bytes_apart(caches[0], others[0])
        assert most <= 1 and often <= 0.02
        torch.testing.assert_close(y, expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("eight", [False, True])
def test_rows_of_mla(eight):
    """DeepSeek's heads: the latent after its norm and the key beside it, the rotary part of q a view, in place."""
    rotation = Rotation.at(RotarySpec(head_dim=16, interleaved=True), torch.randint(0, 2**20, (2, 3), device=DEVICE))
    q, k, latent = (torch.randn(2, h, 3, w, device=DEVICE).bfloat16() for h, w in ((3, 40), (1, 16), (1, 48)))
    weight, slots, found = torch.randn(48, device=DEVICE).bfloat16(), torch.tensor([[5, -1, 0], [2, 7, 3]]), []
    for kernel in ("triton", "reference"):
        whole, cache = q.clone(), torch.zeros(2, 4, 64, device=DEVICE).bfloat16()
        cache = cache.to(torch.float8_e4m3fn) if eight else cache
        about = {"latent_weight": weight, "eps": 1e-6, "scale": 0.03 if eight else None, "kernel": kernel}
        part = whole[..., 24:]
        given = part, k, latent.squeeze(1), rotation, cache, slots.to(DEVICE)
        assert apply_rotary_to_latent_cache(*given, out=part, **about) is part
        found.append((whole, cache))
    (y, cache), (expected, other) = found
    assert torch.equal(y, expected) and not torch.equal(y, q)
    if eight:
        assert bytes_apart(cache[..., 48:], other[..., 48:]) == (0, 0)
        most, often = bytes_apart(cache, other)
        assert most <= 1 and often <= 0.02
    else:
        assert torch.equal(cache[..., 48:], other[..., 48:])
        torch.testing.assert_close(cache, other, rtol=2**-7, atol=0)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, of which the interpreter is made
def test_numbers_of_float8_have_the_bits_of_torch():
    """All bytes, halves between neighbours, one step of float32 beside them, beyond the largest, zeros, no numbers."""
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    every = every[~every.isnan()].sort().values
    x = torch.cat(
        (every, (every[1:] + every[:-1]) / 2, torch.tensor([465.0, 1e30, -1e30, 1e-40, -1e-40, float("inf")]))
    )
    x = torch.cat((x, *(torch.nextafter(x, torch.tensor(to)) for to in (1e38, -1e38))))
    x = torch.cat((x, torch.full((-len(x) % 16,), float("nan")))).view(-1, 1, 16).to(DEVICE)
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.zeros(len(x), dtype=torch.int64, device=DEVICE))
    caches = [torch.zeros(1, len(x), 1, 16, device=DEVICE).to(torch.float8_e4m3fn) for _ in range(2)]
    slots = torch.arange(len(x), device=DEVICE)
    q = torch.zeros_like(x)
    apply_rotary_to_cache(
        q, q, x, rotation, *caches, slots, k_scale=1.0, v_scale=1.0, tensor_format="thd", kernel="triton"
    )
    expected = x.clamp(-448, 448).to(torch.float8_e4m3fn).float()
    torch.testing.assert_close(caches[1].float()[0], expected, rtol=0, atol=0, equal_nan=True)


def test_one_launch(monkeypatch):
    from phasor.rotary.kernels.triton import cache_write

    launches, own = [], cache_write.cache_heads

    class Counted:
        def __getitem__(self, grid):
            launches.append(grid)
            return own[grid]

    monkeypatch.setattr(cache_write, "cache_heads", Counted())
    rotation, x = (
        Rotation.at(RotarySpec(head_dim=16), torch.arange(5, device=DEVICE)),
        torch.randn(5, 3, 16, device=DEVICE),
    )
    caches = [torch.zeros(1, 5, 3, 16, device=DEVICE) for _ in range(2)]
    apply_rotary_to_cache(
        x, x, x, rotation, *caches, torch.arange(5, device=DEVICE), tensor_format="thd", kernel="triton"
    )
    assert launches == [(1, 3)]
    eight = [c.to(torch.float8_e4m3fn) for c in caches]
    apply_rotary_to_cache(
        x, x, x, rotation, *eight, torch.arange(5, device=DEVICE), eps=1e-6, k_scale=1.0, v_scale=1.0,
        tensor_format="thd", kernel="triton",
    )  # fmt: skip
    assert launches == [(1, 3), (1, 3)]
