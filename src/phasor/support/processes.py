"""Several processes that torchrun started, or this one alone."""

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
        """Wait until all are here."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def together(self) -> Iterator[None]:
        """All go on after this block, or none: where one fails, the others raise ``ValueError`` at its end."""
        try:
            yield
        except Exception:
            self.total(torch.tensor(1))
            raise
        if self.total(torch.tensor(0)):
            raise ValueError("another process could not go on; its message says why")


@contextmanager
def process_group() -> Iterator[Group]:
    """The group that torchrun's environment variables describe, with gloo; one that stands already is joined."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Group()
        return
    dist.init_process_group("gloo")
    try:
        yield Group(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()
