"""Several processes that torchrun started, or this one alone."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
            import torch.distributed as dist

            value = value.clone()
            dist.all_reduce(value)
        return value

    def total_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Make every gradient the sum of those of all processes.

        Not by DistributedDataParallel: it holds the process group until the garbage collector frees both, too late.
        """
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self.size == 1 or not gradients:
            return
        import torch

        sums = self.total(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, sums.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def barrier(self) -> None:
        """Wait until all are here."""
        if self.size > 1:
            import torch.distributed as dist

            dist.barrier()

    def gather(self, word: Any) -> list[Any]:
        """What each process gives, plain data, in the order of the ranks."""
        if self.size == 1:
            return [word]
        import torch.distributed as dist

        words: list[Any] = [None] * self.size
        dist.all_gather_object(words, word)
        return words


@contextmanager
def process_group() -> Iterator[Group]:
    """The group that torchrun's environment variables describe, with gloo; one that stands already is joined.

    It ends with the block, however that ends: its threads are joined then. That needs that nothing else holds it. What
    frees it later may do so while the interpreter is locked, and wait for a thread that waits for that lock.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and "torch.distributed" not in sys.modules:  # so no group stands
        yield Group()
        return
    import torch.distributed as dist

    if size == 1 or dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Group()
        return
    # Its functions have the group that stands when they are imported as a default, and an optimizer imports them.
    import torch.distributed.nn  # noqa: F401

    dist.init_process_group("gloo")
    try:
        yield Group(dist.get_rank(), size)
    except BaseException as error:
        _forget_frames(error)
        if re.search("Connection (closed|reset) by peer", str(error)):
            raise ValueError("another process of this run has ended, and says why") from None
        raise
    finally:
        dist.destroy_process_group()


def _forget_frames(error: BaseException | None) -> None:
    """Free what the frames of its traceback hold: those of torch hold the group and what it was doing."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
