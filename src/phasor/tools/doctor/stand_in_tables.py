"""Tables that modules are given or form in a call, and others in their place: that rotate nothing, or are off a bit."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ...support.preserve_state import hooked
from ..patch.sites import rotating_calls

NAMED = re.compile(r"position_embeddings|rotary|rope|freqs|^cos$|^sin$", re.IGNORECASE)


def given_tables(module: nn.Module) -> bool:
    """Whether a module has an argument for tables, or for what forms them."""
    return any(NAMED.search(name) for name in signature(module.forward).parameters)


def tables_in(arguments: dict[str, Any], module: nn.Module) -> Any:
    """The tables among the arguments of a call of a module: cos and sin, or a complex one; None without any."""
    name = _name_in(arguments)
    if name is None:
        return None
    return arguments[name][::-1] if _sines_first(arguments[name], module) else arguments[name]


def _name_in(arguments: dict[str, Any]) -> str | None:
    return next((name for name, value in arguments.items() if NAMED.search(name) and _are_tables(value)), None)


def _sines_first(tables: Any, module: nn.Module) -> bool:
    """Whether a module is given sin and cos in this order, in which its function that rotates takes them (GPT-J)."""
    functions, _ = rotating_calls(type(module))
    orders = ([n for n in signature(function).parameters if n in ("sin", "cos")] for function in functions.values())
    return not isinstance(tables, Tensor) and ["sin", "cos"] in orders


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


def rotating_nothing(arguments: dict[str, Any], module: nn.Module) -> dict[str, Any]:
    """The arguments of a call of a module with tables that rotate nothing."""
    name = _name_in(arguments)
    if name is None:
        return arguments
    tables = still(tables_in(arguments, module))
    return {**arguments, name: tables[::-1] if _sines_first(tables, module) else tables}


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
