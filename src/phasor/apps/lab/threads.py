"""How many of torch's threads work on a small model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
