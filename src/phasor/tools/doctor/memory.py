"""Whether a model fits into the memory that is free, before it is loaded."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from ...support.number_text import size_text

BESIDE = 10**9  # what checking a model needs besides its weights
MOST_PACKED = 16  # 2 bits of weights in a config's float32


def check_memory(folder: Path, model: nn.Module, stored: int, way_out: str) -> None:
    """``stored``: bytes of the weights, which may be packed: eight values of 4 bits stand for 32 bytes. ``way_out``:
    what to do where they do not fit."""
    own = _bytes(model.parameters()) + _bytes(model.buffers())
    if own > MOST_PACKED * stored + BESIDE:
        raise ValueError(
            f"{folder}: its config describes a model of {size_text(own)}, and its weights take {size_text(stored)}; "
            "set the config's sizes to those of the weights, or check it alone with phasor doctor --meta"
        )
    needed, free = max(stored, _bytes(model.buffers())), free_memory()
    if free is not None and needed + BESIDE > free:
        raise ValueError(
            f"{folder}: its weights take {size_text(needed)}, and {size_text(free)} of memory are free; {way_out}"
        )


def _bytes(tensors: Iterator[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        known = dict(line.split(":") for line in lines)
        return int(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
