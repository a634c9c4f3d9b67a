"""Windows in batches of about equal length: which ones is a function of (seed, epoch) alone."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .data.align import Encoded

_POOL = 50  # batches sorted by length together: less padding, still another mixture every epoch


class Batch(NamedTuple):
    """``ids``, ``mask`` (tokens) and ``content`` (tokens that are not special) ``[B, S]``, padding last; ``spans``
    int64 ``[N, 4]`` rows (batch, type, start, end)."""

    ids: Tensor
    mask: Tensor
    content: Tensor
    spans: Tensor

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(*(tensor.to(device) for tensor in self))


def collate(windows: Sequence[Encoded]) -> Batch:
    """The windows, padded to the longest.

    >>> first = Encoded([5, 6], [(0, 1), (1, 2)], [False, False], 0, [(3, 0, 1)])
    >>> batch = collate([first, Encoded([7], [(0, 1)], [False], 1, [])])
    >>> batch.ids.tolist(), batch.mask.tolist(), batch.spans.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]], [[0, 3, 0, 1]])
    """
    length = max(len(window.ids) for window in windows)
    ids = torch.zeros(len(windows), length, dtype=torch.int64)
    mask, content = (torch.zeros(len(windows), length, dtype=torch.bool) for _ in range(2))
    for row, window in enumerate(windows):
        size = len(window.ids)
        ids[row, :size] = torch.tensor(window.ids)
        mask[row, :size] = True
        content[row, :size] = ~torch.tensor(window.special)
    spans = [(row, *span) for row, window in enumerate(windows) for span in window.spans]
    return Batch(ids, mask, content, torch.tensor(spans, dtype=torch.int64).reshape(-1, 4))


def shuffled(windows: Sequence[Encoded], batch: int, seed: int, epoch: int) -> list[list[Encoded]]:
    """All windows once, in a random order of batches of windows of about equal length."""
    chance = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(windows), generator=chance).tolist()
    batches = []
    for first in range(0, len(order), _POOL * batch):
        pool = sorted((windows[i] for i in order[first : first + _POOL * batch]), key=lambda window: len(window.ids))
        batches += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [batches[i] for i in torch.randperm(len(batches), generator=chance).tolist()]


def by_length(windows: Sequence[Encoded], batch: int) -> list[list[int]]:
    """Indices of all windows in batches of about equal length, for prediction.

    >>> by_length([Encoded([0] * n, [], [], 0, []) for n in (3, 1, 2)], 2)
    [[1, 2], [0]]
    """
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))
    return [order[i : i + batch] for i in range(0, len(order), batch)]
