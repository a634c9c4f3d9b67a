"""Keys rotated into a cache by the Triton kernel: the bits of the plain expression, and nothing beside the slots."""

import pytest
import torch

from phasor import RotarySpec, Rotation
from phasor.caches import apply_rotary_to_cache

from .conftest import DEVICE

pytestmark = pytest.mark.usefixtures("few_programs")


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
