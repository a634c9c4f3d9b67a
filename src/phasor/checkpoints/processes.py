"""Several processes that torchrun started, or this one alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist


@dataclass(frozen=True)
class Group:
    """This process among the others; alone by default."""

    rank: int = 0
    size: int = 1

    def barrier(self) -> None:
        """Wait until all are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def process_group() -> Iterator[Group]:
    """The group that torchrun's environment variables describe, with gloo."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group()
        return
    dist.init_process_group("gloo")
    try:
        yield Group(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()
