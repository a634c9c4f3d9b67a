"""Tensors on the CPU, whatever device a caller makes them on."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def on_cpu() -> AbstractContextManager[Any]:
    """Tensors are made on the CPU inside.

    Nothing is entered where that is so anyway: torch asks a device that was entered at every operation, which doubles
    the time of a small model.
    """
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
