"""Made-up arguments brought to the widths of a model: the layer that refuses one says what it takes."""

import inspect
import math
import re
import traceback
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...support.preserve_state import hooked
from .inputs import Inputs, run

MOST = 24  # widths that are changed one after the other
MET = re.compile(
    r"tensor a \((?P<a>\d+)\) must match .* tensor b \((?P<b>\d+)\) at non-singleton dimension (?P<axis>\d+)"
    r"|must match except in dimension (?P<other>\d+)\. Expected size (?P<c>\d+) but got size (?P<d>\d+)"
)
LARGEST = 1_000_000  # numbers of one argument


class UnfitError(ValueError):
    """A model does not run with such arguments; ``far``: how many layers ran, and to which line of its forward."""

    def __init__(self, error: Exception, layers: int, line: int = 0) -> None:
        super().__init__(error)
        self.error, self.far = error, (layers, line)


def noise(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers that are those of one argument only: that is how it is known again where a layer meets it."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return torch.randn(shape, generator=generator).to(dtype)


def fitted(model: nn.Module, given: Inputs) -> Inputs:
    """The arguments with which the model runs to its end, each as wide as its layers ask; raises `UnfitError`."""
    for _ in range(MOST):
        entered: list[tuple[nn.Module, tuple[Any, ...]]] = []
        leaves = [part for part in model.modules() if not any(part.children())]
        note = lambda layer, args, entered=entered: entered.append((layer, args))  # noqa: E731
        try:
            with hooked([leaf.register_forward_pre_hook(note) for leaf in leaves]):
                run(model, given)
            return given
        except Exception as error:
            other = (_as_asked(given, *entered[-1]) if entered else None) or _as_met(given, str(error))
            if other is None:
                raise UnfitError(error, len(entered), _line(model, error)) from error
        given = other
    raise UnfitError(ValueError("no width suits all of its layers"), len(entered))


def _line(model: nn.Module, error: Exception) -> int:
    code = inspect.unwrap(type(model).forward).__code__
    return next((line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is code), 0)


def _as_asked(given: Mapping[str, Any], layer: nn.Module, args: tuple[Any, ...]) -> Inputs | None:
    """The arguments with those that a layer met last as wide as it takes; None where width is not what it refused."""
    weight, met = getattr(layer, "weight", None), args[0] if args else None
    if not isinstance(weight, Tensor) or not isinstance(met, Tensor) or not met.is_floating_point():
        return None
    if met.ndim < 2 or met.numel() > LARGEST:
        return None
    wants = weight.shape[1] * getattr(layer, "groups", 1) if weight.ndim > 1 else weight.shape[0]
    has = met.shape[1 if weight.ndim > 2 else -1]
    contents = {name: content for name, value in given.items() if (content := _content(value)) is not None}
    inside = [name for name, content in contents.items() if bool(torch.isin(content.flatten()[:8], met).all())]
    inside = inside or [name for name, content in contents.items() if has in content.shape][:1]  # made of it
    if has == wants or not inside:
        return None
    name, several = inside[-1], len(inside) > 1
    shape = list(contents[name].shape)
    axes = [i for i, size in enumerate(shape) if size == has] or [1, -1] if len(shape) > 3 else [-1]
    if several:  # put beside each other: the last one takes what is left
        shape[axes[0]] += wants - has
    else:
        axis = next((i for i in axes if shape[i] * wants % has == 0), axes[0])
        shape[axis] = shape[axis] * wants // has
    if min(shape) < 1 or math.prod(shape) > LARGEST or shape == list(contents[name].shape):
        return None
    new = noise(name, *shape, dtype=contents[name].dtype)
    return {**given, name: [new for _ in given[name]] if isinstance(given[name], list) else new}


def _as_met(given: Mapping[str, Any], said: str) -> Inputs | None:
    """The arguments with one as wide as what an operation put beside it."""
    if (found := MET.search(said)) is None:
        return None
    one, other = (found[a] or found[b] for a, b in ("ac", "bd"))
    least = int(found["axis"] or found["other"])
    for has, wants in ((one, other), (other, one)):
        for name, value in given.items():
            content = _content(value)
            if content is not None and content.ndim > least and content.shape[-1] == int(has):
                return {**given, name: noise(name, *content.shape[:-1], int(wants), dtype=content.dtype)}
    return None


def _content(value: Any) -> Tensor | None:
    """The random numbers of an argument."""
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, Tensor) and first.is_floating_point() and first.ndim > 1 else None
