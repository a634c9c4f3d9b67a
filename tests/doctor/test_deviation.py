"""What a difference between the operator that was seen and the one that must be is called."""

import torch
from torch import Tensor

from phasor.tools.doctor.deviation import SAME, Deviation, around, deviation


def turns(rates: Tensor, tokens: int = 24) -> Tensor:
    """``[heads, pairs, tokens]``"""
    angles = rates[:, None] * torch.arange(tokens)
    return torch.polar(torch.ones_like(angles), angles)[None]


def named(seen: Tensor, must: Tensor) -> Deviation:
    live = torch.ones(1, must.shape[-1], dtype=torch.bool)
    found = deviation(seen[None], must[None], around(must), live, SAME)
    assert found is not None
    return found


def test_slow_pairs_that_are_exchanged_are_not_taken_for_rounding() -> None:
    """Between the angles of slow pairs there is little, and one is as much too fast as the other too slow."""
    rates = 10_000.0 ** -(torch.arange(8, dtype=torch.float64) / 8)
    found = named(turns(rates[[0, 1, 2, 3, 4, 5, 7, 6]]), turns(rates))
    assert found.cause == "pairs exchanged" and "pairs 6 and 7" in found.says
    angles = rates[:, None] * torch.arange(24)
    halved = torch.complex(angles.cos().bfloat16().double(), angles.sin().bfloat16().double())[None]
    assert named(halved, turns(rates)).cause == "half precision"


def test_slow_pairs_that_stand_still_are_not_taken_for_rounding() -> None:
    rates = 10_000.0 ** -(torch.arange(8, dtype=torch.float64) / 8)
    must, slow = turns(rates), torch.arange(8) > 5
    assert named(torch.where(slow[:, None], 1.0, must), must).cause == "not rotated"
    assert named(torch.where(slow[:, None], turns(1.3 * rates), must), must).cause == "frequencies"
