"""Sequences cut over ranks, index for index as torch's load balancers, Megatron and TransformerEngine cut them."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
    _PTRRLoadBalancer,
)

from phasor.positions import gather, packed, shard, shard_order

SCHEMES = ("contiguous", "head-tail", "striped", "ulysses")


def megatron(length: int, rank: int, size: int) -> np.ndarray:
    """``get_pos_emb_on_this_cp_rank``: of 2 * size chunks those numbered rank and 2 * size - rank - 1."""
    chunks = np.arange(length).reshape(2 * size, -1)
    return chunks[[rank, 2 * size - rank - 1]].ravel()


def transformer_engine(bounds: list[int], rank: int, size: int) -> np.ndarray:
    """``thd_get_partitioned_indices``: in each sequence the slice ``rank`` and the one that mirrors it."""
    found = []
    for start, end in itertools.pairwise(bounds):
        slice_ = (end - start) // (2 * size)
        found += range(start + rank * slice_, start + (rank + 1) * slice_)
        found += range(end - (rank + 1) * slice_, end - rank * slice_)
    return np.array(found)


def test_random_packings_as_theirs():
    dice = random.Random(0)
    for _ in range(500):
        size = dice.randint(1, 8)
        lengths = [2 * size * dice.randint(1, 5) for _ in range(dice.randint(1, 6))]
        bounds = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        cu, total = torch.tensor(bounds), bounds[-1]
        positions = packed(cu)
        plain = shard_order(total, size, "head-tail")
        by_document = shard_order(total, size, "per-document", cu_seqlens=cu)
        assert torch.equal(plain, _HeadTailLoadBalancer(total, size, "cpu")._generate_indices()[0].long())
        theirs = _PerDocumentHeadTailLoadBalancer([lengths], size, "cpu")._generate_indices()[0]
        parts = torch.stack([torch.from_numpy(transformer_engine(bounds, rank, size)) for rank in range(size)])
        assert sorted(theirs.tolist()) == sorted(by_document.tolist())
        assert torch.equal(by_document, parts.flatten())
        for rank in range(size):
            assert shard(torch.arange(total), (rank, size)).tolist() == megatron(total, rank, size).tolist()
            mine = shard(positions, (rank, size), "per-document", cu_seqlens=cu)
            assert torch.equal(mine, positions[parts[rank]])


def test_one_document_is_torchs_order_of_documents():
    """torch lists documents first and the ranks inside them, so that of one document all is alike."""
    for size in (1, 2, 4):
        theirs = _PerDocumentHeadTailLoadBalancer([[8 * size]], size, "cpu")._generate_indices()[0]
        assert torch.equal(theirs, shard_order(8 * size, size, "per-document", cu_seqlens=torch.tensor([0, 8 * size])))


def test_torchs_balancers_are_schemes():
    from torch.nn.attention.flex_attention import create_block_mask

    documents = torch.tensor([0] * 512 + [1] * 256 + [2] * 256)

    def mask(b, h, q, k):
        return (q >= k) & (documents[q] == documents[k])

    block_mask = create_block_mask(mask, 1, 1, 1024, 1024, device="cpu")
    for balancer in (_PTRRLoadBalancer(block_mask, 2), _PerDocumentHeadTailLoadBalancer([[16, 16], [8, 24]], 2, "cpu")):
        order = balancer._generate_indices()
        positions = torch.arange(order.shape[1]).expand(2, 3, -1)[:, : len(order)].contiguous()
        parts = [shard(positions, (rank, 2), balancer) for rank in range(2)]
        assert torch.equal(torch.cat(parts, -1), positions.gather(-1, order.long().expand(positions.shape)))
        assert torch.equal(gather(parts, balancer), positions)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", [(24,), (2, 24), (3, 2, 24)])
def test_what_is_cut_comes_back(scheme, shape):
    x = torch.randint(0, 99, shape)
    for size in (1, 2, 3, 4):
        parts = [shard(x, (rank, size), scheme) for rank in range(size)]
        assert all(part.shape == (*shape[:-1], 24 // size) for part in parts)
        assert torch.equal(gather(parts, scheme), x)
    hidden = torch.randn(2, 24, 5)
    parts = [shard(hidden, (rank, 2), scheme, dim=1) for rank in range(2)]
    assert torch.equal(gather(parts, scheme, dim=1), hidden)


def test_rotations_of_shards_are_those_of_the_sequence():
    """Bit for bit; counted per rank, as is done by mistake, they are not."""
    import phasor

    spec, q = phasor.RotarySpec(head_dim=16), torch.randn(1, 2, 24, 16)
    whole = phasor.rotate(q, None, torch.arange(24), spec)[0]
    for scheme in SCHEMES:
        for rank in range(3):
            mine = shard(q, (rank, 3), scheme, dim=2)
            at = shard(torch.arange(24), (rank, 3), scheme)
            rotated = phasor.rotate(mine, None, at, spec)[0]
            assert torch.equal(rotated, shard(whole, (rank, 3), scheme, dim=2))
            if rank:
                assert not torch.equal(rotated, phasor.rotate(mine, None, torch.arange(8), spec)[0])
