"""Every set of instructions forms the cos and sin of the reference, to the bit, from phases of every size."""

import math
import random

import pytest
import torch

import phasor
from phasor.rotary.kernels.native import kernel as native
from phasor.rotary.kernels.native.autograd import plan_of

pytestmark = pytest.mark.skipif(bool(native.MISSING), reason=native.MISSING)
SETS = ("portable", "avx2", "avx512", "avx512_bf16", "neon")


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("pairs", [3, 8, 32, 40, 64])
def test_phases_of_every_size(name: str, pairs: int) -> None:
    """Steps from 2 units of a turn to half a turn, distances to 2**62; some tokens stand where the one before does."""
    if not _has(name):
        pytest.skip(f"this machine has no {name}")
    draw = random.Random(pairs)
    x = torch.cat((torch.ones(1, 1, 64, pairs), torch.zeros(1, 1, 64, pairs)), dim=-1)
    try:
        for _ in range(20):
            frequencies = tuple(2 * math.pi * 2 ** -draw.uniform(1, 63) for _ in range(pairs))
            spec = phasor.RotarySpec(head_dim=2 * pairs, frequencies=frequencies)
            most = 2 ** draw.randint(1, 62)
            at = torch.tensor([draw.randint(-most, most) for _ in range(32)]).repeat_interleave(2)
            found = phasor.apply_rotary(x, phasor.Rotation.at(spec, at), kernel="reference")
            done = native._native.rotate(x, None, at, "bhsd", False, None, None, None, plan_of(spec.key, None))
            assert torch.equal(done[0].view(torch.int32), found.view(torch.int32))
    finally:
        native._native.use(None)


def _has(name: str) -> bool:
    try:
        return bool(native._native.use(name))
    except ValueError:
        return False
