"""Slots of a KV cache: where the tokens of each sequence are kept."""

import torch
from torch import Tensor

from ...support.checks import whole
from ...support.tracing import readable


def cache_slots(positions: Tensor, block_size: int, block_table: Tensor | None = None) -> Tensor:
    """Slots of tokens at ``positions`` ``[batch, seq]`` of their sequences: int64, of the same shape.

    Without a table sequence ``b`` has block ``b``, as in a contiguous cache of ``block_size`` tokens each. With
    ``block_table`` ``[batch, blocks per sequence]`` (vLLM) position ``p`` is in block ``table[b, p // block_size]``.
    Positions below 0 are padding, and get -1.

    Raises ``ValueError`` for positions beyond the blocks of a sequence, or in a block that the table marks as absent
    (below 0), and for a table on another device.

    >>> cache_slots(torch.tensor([[0, 5], [-1, 2]]), 4, torch.tensor([[7, 3], [0, 0]])).tolist()
    [[28, 13], [-1, 2]]
    """
    whole("block_size", block_size)
    _check_integers("positions", positions, 2)
    batch = positions.shape[0]
    if block_table is None:
        block_table = torch.arange(batch, device=positions.device).unsqueeze(-1)
    _check_integers("block_table", block_table, 2)
    _check_devices(positions=positions, block_table=block_table)
    if block_table.shape[0] != batch:
        raise ValueError(f"block_table must have a row for each of {batch} sequences, got {tuple(block_table.shape)}")
    room = block_table.shape[1] * block_size
    if readable(positions) and positions.is_cpu and positions.numel() and int(positions.max()) >= room:
        raise ValueError(
            f"positions must be below {room} ({block_table.shape[1]} blocks of {block_size} per sequence), "
            f"got {int(positions.max())}"
        )
    if not room:  # only padding
        return torch.full_like(positions, -1, dtype=torch.int64)
    at = positions.clamp(min=0).long()
    block = block_table.long().gather(1, at // block_size)
    _check_kept("block_table", block, positions)
    return torch.where(positions < 0, -1, block * block_size + at % block_size)


def page_slots(
    batch_indices: Tensor, positions: Tensor, kv_indices: Tensor, kv_indptr: Tensor, page_size: int
) -> Tensor:
    """Slots ``[tokens]`` from FlashInfer's page table, as `append_paged_kv_cache` takes it.

    Token ``t`` is at position ``positions[t]`` of sequence ``batch_indices[t]``, whose pages are
    ``kv_indices[kv_indptr[b] : kv_indptr[b + 1]]``. Positions below 0 are padding, and get -1.

    Raises ``ValueError`` for positions beyond the pages of a sequence, sequences that ``kv_indptr`` does not have,
    bounds outside of the pages, pages below 0, and tensors on different devices.

    >>> pages, starts = torch.tensor([4, 2, 9]), torch.tensor([0, 2, 3])
    >>> page_slots(torch.tensor([0, 0, 1]), torch.tensor([15, 16, 3]), pages, starts, 16).tolist()
    [79, 32, 147]
    """
    whole("page_size", page_size)
    names = ("batch_indices", "positions", "kv_indices", "kv_indptr")
    for name, x in zip(names, (batch_indices, positions, kv_indices, kv_indptr), strict=True):
        _check_integers(name, x, 1)
    _check_devices(batch_indices=batch_indices, positions=positions, kv_indices=kv_indices, kv_indptr=kv_indptr)
    if batch_indices.shape != positions.shape:
        raise ValueError(
            f"batch_indices and positions must have one entry per token, "
            f"got {tuple(batch_indices.shape)} and {tuple(positions.shape)}"
        )
    pages, sequences = kv_indices.shape[0], kv_indptr.shape[0] - 1
    if not pages:  # only padding, or the check below says what is beyond
        kv_indices = kv_indices.new_zeros(1)
    if readable(batch_indices) and batch_indices.is_cpu and batch_indices.numel():
        low, high = (int(b) for b in batch_indices.aminmax())
        if low < 0 or high >= sequences:
            raise ValueError(
                f"batch_indices must be sequences 0 to {sequences - 1} (kv_indptr), got {low if low < 0 else high}"
            )
    at, starts, row = positions.clamp(min=0).long(), kv_indptr.long(), batch_indices.long()
    page = starts[row] + at // page_size
    if readable(page) and page.is_cpu and bool(((page >= starts[row + 1]) & (positions >= 0)).any()):
        worst = int(positions[page >= starts[row + 1]].max())
        raise ValueError(f"positions must be on a page of their sequence (kv_indptr), got {worst}, which is beyond")
    if readable(page) and page.is_cpu and bool((starts < 0).any() | ((page >= pages) & (positions >= 0)).any()):
        bounds = f"{int(starts.min())} to {int(starts[-1])}"
        raise ValueError(f"kv_indptr must go from 0 to the number of pages in kv_indices, {pages}, got {bounds}")
    block = kv_indices.long()[page.clamp(max=kv_indices.shape[0] - 1)]
    _check_kept("kv_indices", block, positions)
    return torch.where(positions < 0, -1, block * page_size + at % page_size)


def _check_kept(name: str, block: Tensor, positions: Tensor) -> None:
    """A block below 0 is absent: its last place would be slot -1, which a cache takes for padding and skips."""
    if readable(block) and block.is_cpu and bool(((block < 0) & (positions >= 0)).any()):
        worst = int(positions[(block < 0) & (positions >= 0)][0])
        raise ValueError(f"{name} must have a block for every position, got {int(block.min())} for position {worst}")


def _check_integers(name: str, x: Tensor, rank: int) -> None:
    if not isinstance(x, Tensor) or x.dtype not in (torch.int64, torch.int32) or x.ndim != rank:
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be integers with {rank} dimension{'s' * (rank > 1)}, got {got}")


def _check_devices(**tensors: Tensor) -> None:
    if len({x.device for x in tensors.values()}) > 1:
        devices = ", ".join(f"{name} on {x.device}" for name, x in tensors.items())
        raise ValueError(f"{' and '.join(tensors)} must be on the same device, got {devices}")
