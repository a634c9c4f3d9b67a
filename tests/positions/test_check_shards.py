"""What several ranks hold of one sequence: the four mistakes, and all schemes of `shard` found right."""

import random

import pytest
import torch

from phasor.positions import check_shards, gather, packed, shard

SCHEMES = ["contiguous", "head-tail", "striped", "ulysses"]


def cut(positions, size=2, scheme="head-tail", **options):
    return [shard(positions, (rank, size), scheme, **options) for rank in range(size)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_shard_cuts_is_right(scheme):
    rows = torch.arange(24).expand(2, 24) + torch.tensor([[0], [7]])
    for positions in (torch.arange(24), rows, torch.stack([rows, rows * 2, rows // 3])):
        parts = cut(positions, 3, scheme)
        assert check_shards(parts, positions) == ()
        assert check_shards(parts, positions, k_positions=torch.cat(parts, -1)) == ()


def test_documents_repeat_positions():
    bounds = torch.tensor([0, 8, 12])
    positions = packed(bounds)
    parts = cut(positions, 2, "per-document", cu_seqlens=bounds)
    assert check_shards(parts, positions) == ()
    counted_on = [parts[0], parts[1] + 1]
    assert check_shards(counted_on, positions).causes == ("tokens twice", "tokens missing")


def test_numbered_locally():
    """Each rank but the first, named by its number and what is missing."""
    found = check_shards([torch.arange(4)] * 3, torch.arange(12))
    assert found.causes == ("shard numbered locally",)
    assert [finding.reason for finding in found] == [
        "rank 1 stands at 0 to 3, and 4 to 11 are missing", "rank 2 stands at 0 to 3, and 4 to 11 are missing"
    ]  # fmt: skip


def test_documents_of_one_length_are_not_numbered_locally():
    """Each rank has a document of its own, and both begin at 0."""
    positions = packed(torch.tensor([0, 4, 8]))
    assert check_shards(cut(positions, 2, "contiguous"), positions) == ()


def test_overlapping_and_missing():
    found = check_shards([torch.tensor([0, 1, 2]), torch.tensor([2, 3, 4])], torch.arange(5))
    assert [(f.cause, f.row, f.token, f.reason) for f in found] == [
        ("tokens twice", 0, 0, "ranks 0, 1 hold position 2 2 times where the whole has it 1 times")
    ]
    found = check_shards([torch.tensor([0, 1]), torch.tensor([4, 5])], torch.arange(6))
    assert [(f.cause, f.token, f.reason) for f in found] == [("tokens missing", None, "no rank holds position 2 to 3")]


def test_keys_in_another_order():
    """Keys lie head-tail as they were gathered, and the mask takes them for the whole in order."""
    positions = torch.arange(8).expand(2, 8)
    parts = cut(positions)
    found = check_shards(parts, positions, k_positions=positions)
    assert [(f.cause, f.row, f.token) for f in found] == [("keys in another order", row, 2) for row in (0, 1)]
    assert found[0].reason == "the key stands at 6, and 2 is taken for it"
    assert check_shards([gather(parts)], positions, k_positions=positions) == ()


@pytest.mark.parametrize("seed", range(20))
def test_one_token_that_stands_elsewhere_is_found(seed):
    chance = random.Random(seed)
    size, scheme = chance.choice((2, 3, 4)), chance.choice(SCHEMES)
    positions = torch.arange(24).expand(2, 24).clone()
    parts = [part.clone() for part in cut(positions, size, scheme)]
    rank, row, column = chance.randrange(size), chance.randrange(2), chance.randrange(24 // size)
    parts[rank][row, column] += chance.choice((-1, 1, 100))
    found = check_shards(parts, positions)
    assert found.wrong and {finding.row for finding in found} == {row}
