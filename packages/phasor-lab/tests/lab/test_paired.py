"""Differences between models of one seed, and their intervals."""

import numpy as np
import pytest

from phasor_lab.lab.evaluate import BLOCKS, summary
from phasor_lab.lab.results import against, paired, protocol_of


def row(blocks):
    return {"loss": float(np.mean(blocks)), "blocks": list(blocks)}


def test_the_mean_is_over_the_seeds_that_both_have():
    ours, theirs = {0: row([2.0, 2.0]), 1: row([5.0, 5.0]), 2: row([9.0])}, {0: row([1.0, 1.0]), 1: row([2.0, 2.0])}
    found = paired(ours, theirs)
    assert (found.mean, found.seeds) == (2.0, 2)
    assert (found.low, found.high) == (1.0, 3.0)  # one seed may be drawn twice, and the blocks do not differ
    assert paired({3: row([1.0])}, theirs) is None


def test_what_both_find_hard_does_not_widen_the_interval():
    """The reason to compare in pairs: bytes differ far more than models do."""
    hard = np.random.default_rng(1).normal(2.0, 1.0, 64)
    found = paired({0: row(hard + 0.1)}, {0: row(hard)})
    assert found.low == pytest.approx(0.1) and found.high == pytest.approx(0.1)


def test_the_interval_of_one_seed_is_that_of_a_mean_of_blocks():
    """The bootstrap of a mean of 64 normal differences: 1.96 standard errors to each side (to 10 %)."""
    differences = np.random.default_rng(2).normal(0.0, 1.0, 64)
    found = paired({0: row(differences)}, {0: row(np.zeros(64))})
    error = differences.std() / 8
    assert found.low == pytest.approx(found.mean - 1.96 * error, abs=0.2 * error)
    assert found.high == pytest.approx(found.mean + 1.96 * error, abs=0.2 * error)


def test_nine_in_ten_intervals_and_more_hold_the_true_difference():
    chance = np.random.default_rng(3)
    drawn = [paired({0: row(chance.normal(0.3, 1.0, 40))}, {0: row(np.zeros(40))}) for _ in range(100)]
    assert 88 <= sum(d.low <= 0.3 <= d.high for d in drawn) <= 99


def test_seeds_that_differ_widen_the_interval():
    blocks = np.random.default_rng(4).normal(0.0, 0.1, 64)
    alike = paired({s: row(blocks) for s in range(3)}, {s: row(0 * blocks) for s in range(3)})
    apart = paired({s: row(blocks + s) for s in range(3)}, {s: row(0 * blocks) for s in range(3)})
    assert apart.high - apart.low > 5 * (alike.high - alike.low)
    assert "one seed, so it says nothing about another one" in protocol_of(
        "rotary", {"a": [(1, alike._replace(seeds=1))]}
    )
    assert "seeds drawn again; from few seeds" in protocol_of("rotary", {"a": [(1, alike)]})


def test_all_are_compared_with_the_reference_where_it_has_a_number():
    table = {
        "rotary": {64: {0: row([1.0, 1.0])}, 128: {0: row([2.0, 2.0])}},
        "alibi": {64: {0: row([1.5, 1.5])}, 256: {0: row([1.0, 1.0])}},
        "learned": {512: {0: row([1.0])}},
    }
    found = against("rotary", table)
    assert {name: [(x, d.mean) for x, d in points] for name, points in found.items()} == {"alibi": [(64, 0.5)]}


def test_blocks_are_the_same_bytes_at_every_length():
    import torch

    losses = torch.arange(640.0, dtype=torch.float64)
    for windows in (losses.view(10, 64), losses.view(40, 16), losses.view(160, 4)):
        found = summary(windows, 64)
        assert found["loss"] == 319.5
        assert found["blocks"] == [31.5 + 64 * i for i in range(10)]
    many = summary(torch.zeros(1000, 4, dtype=torch.float64), 4)["blocks"]
    assert len(many) <= BLOCKS
