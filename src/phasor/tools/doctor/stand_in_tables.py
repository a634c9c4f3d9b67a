"""Tables that modules are given or form in a call, and others in their place, whose angles are off a bit."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ...support.preserve_state import hooked

NAMED = re.compile(r"position_embeddings|rotary|rope|freqs|^cos$|^sin$", re.IGNORECASE)


def given_tables(module: nn.Module) -> bool:
    """Whether a module has an argument for tables, or for what forms them."""
    return any(NAMED.search(name) for name in signature(module.forward).parameters)


@contextlib.contextmanager
def blurred_modules(modules: Sequence[nn.Module], by: float, seed: int) -> Iterator[None]:
    """Rotary modules return tables whose angles are all off by ``by``, up or down."""
    random = torch.Generator("cpu").manual_seed(seed)

    def rotated(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        angles = (torch.randint(2, cos.shape, generator=random, device="cpu") * 2 - 1).to(cos) * by
        return cos - sin * angles, sin + cos * angles

    def blurred(module: nn.Module, args: Any, tables: Any) -> Any:
        if isinstance(tables, Tensor):
            return torch.complex(*rotated(tables.real, tables.imag)) if tables.is_complex() else tables
        return type(tables)(rotated(*tables)) if _are_cos_and_sin(tables) else tables

    with hooked(module.register_forward_hook(blurred) for module in modules):
        yield


def _are_cos_and_sin(tables: Any) -> bool:
    floats = isinstance(tables, tuple | list) and all(isinstance(t, Tensor) and t.is_floating_point() for t in tables)
    return floats and len(tables) == 2 and tables[0].shape == tables[1].shape
