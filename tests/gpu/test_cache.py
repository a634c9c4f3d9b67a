"""Keys rotated into a cache by the Triton kernel: the bits of the plain expression, and nothing beside the slots."""

import random

import pytest
import torch

from core.test_cache_write import a_cache, slots_of
from phasor import RotarySpec, Rotation, apply_rotary_to_cache

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
