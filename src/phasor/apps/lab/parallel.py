"""Data parallel under torchrun: each process takes its share of every batch, the first one writes and prints."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...support.processes import Group


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch's threads, for a while.

    Small models are fastest with one unless the machine is idle: threads that wait for one that another program has
    displaced spin (two of them, with two cores and three programs: a fifteenth of the speed of one).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def averaging(model: torch.nn.Module, group: Group) -> torch.nn.Module:
    """The model, with gradients averaged over the processes if there are several."""
    return torch.nn.parallel.DistributedDataParallel(model) if group.size > 1 else model
