"""Tables that modules are given or form in a call, and others in their place: that rotate nothing, or are off a bit."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...support.preserve_state import hooked

NAMED = re.compile(r"position_embeddings|rotary|rope|freqs|^cos$|^sin$", re.IGNORECASE)


def tables_in(arguments: dict[str, Any]) -> Any:
    """The tables among the arguments of a call: a pair of tensors, or a complex one; None where there are none."""
    return next((value for name, value in arguments.items() if NAMED.search(name) and _are_tables(value)), None)


def _are_tables(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.is_complex()
    floats = isinstance(value, tuple | list) and all(isinstance(t, Tensor) and t.is_floating_point() for t in value)
    return floats and len(value) == 2 and value[0].shape == value[1].shape


def still(value: Any) -> Any:
    """Tables of the same form that rotate nothing."""
    if isinstance(value, Tensor):
        return torch.ones_like(value)
    return type(value)((torch.ones_like(value[0]), torch.zeros_like(value[1])))


def rotating_nothing(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call with tables that rotate nothing."""
    tables = tables_in(arguments)
    return {name: still(value) if value is tables and value is not None else value for name, value in arguments.items()}


@contextlib.contextmanager
def still_modules(modules: Sequence[nn.Module]) -> Iterator[list[Any]]:
    """Rotary modules that attentions call return tables that rotate nothing; the list holds the true ones."""
    seen: list[Any] = []

    def noted(tables: Any) -> Any:
        seen.append(tables)
        return still(tables)

    with _instead(modules, noted):
        yield seen


@contextlib.contextmanager
def blurred_modules(modules: Sequence[nn.Module], by: float, seed: int) -> Iterator[None]:
    """Rotary modules return tables whose angles are all off by ``by``, up or down."""
    random = torch.Generator("cpu").manual_seed(seed)

    def rotated(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        angles = (torch.randint(2, cos.shape, generator=random, device="cpu") * 2 - 1).to(cos) * by
        return cos - sin * angles, sin + cos * angles

    def blurred(tables: Any) -> Any:
        if isinstance(tables, Tensor):
            return torch.complex(*rotated(tables.real, tables.imag))
        return type(tables)(rotated(*tables))

    with _instead(modules, blurred):
        yield


def _instead(modules: Sequence[nn.Module], change: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Inside, what modules return is changed, where it is tables."""

    def instead(module: nn.Module, args: Any, result: Any) -> Any:
        return change(result) if _are_tables(result) else result

    return hooked(module.register_forward_hook(instead) for module in modules)
