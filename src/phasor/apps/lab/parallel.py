"""Data parallel under torchrun: each process takes its share of every batch, the first one writes and prints."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """This process among those of torchrun; alone if there is no torchrun."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """This process's rows of a global batch."""
        return rows.chunk(self.size)[self.rank]

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def process_group() -> Iterator[Group]:
    """The group that torchrun's environment variables describe, with gloo."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Group()
        return
    dist.init_process_group("gloo")
    try:
        yield Group(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


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
