"""Whatever a ledger goes through, its keys are as near to the truth as one rotation, or two, can bring them."""

import pytest
import torch

from .histories import FAMILIES, History, history

BOUNDS = {"raw": 1.2, "residual": 1.6}  # of the error of a fresh rotation; one rounding, and two: sqrt(2)
STEPS = 24


def run(seed: int, keep: str) -> History:
    name, one = history(seed, keep)
    for _ in range(STEPS):
        one.step()
        assert len(one.ledger) == len(one.oracle.tokens), (seed, name, one.done)
        assert torch.equal(one.ledger.positions, one.oracle.positions()), (seed, name, one.done)
    mine, fresh = one.errors()
    assert mine <= BOUNDS[keep] * fresh, f"seed {seed}, {name}, {one.done}: {mine:.2e} for {fresh:.2e}"
    return one


@pytest.mark.parametrize("keep", BOUNDS)
def test_random_histories(keep):
    seen = {name for seed in range(60) for name in run(seed, keep).done}
    assert seen == set(History.STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("keep", BOUNDS)
def test_a_thousand_random_histories(keep):
    for seed in range(1000):
        run(seed, keep)


def test_histories_reach_every_family():
    assert {history(seed, "raw")[0] for seed in range(60)} == set(FAMILIES)


def test_raw_keys_have_the_bits_of_a_fresh_rotation():
    for seed in range(20):
        one = run(seed, "raw")
        assert torch.equal(one.ledger.keys, one.oracle.keys(one.ledger.spec, one.dtype))
