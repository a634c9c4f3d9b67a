"""What in a model is rotary: its modules that form cos and sin, its modules that turn q and k, its configs' parts."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from types import FunctionType
from typing import Any

from torch import nn

from .swap import globals_of

FORMS = re.compile(r"rotary|rope", re.IGNORECASE)
TURNS = re.compile(r"^(vision_)?apply_(multidimensional_)?(rotary|rope)")
TURNS_ITSELF = re.compile(r"^_?apply_(rotary|rope)|^rotate_queries")


@dataclass(frozen=True)
class Caller:
    """A module that turns: the functions it calls for that, by name, and the methods that call them."""

    path: str
    module: nn.Module
    functions: dict[str, Callable]
    methods: tuple[str, ...]


def has_config(model: Any) -> bool:
    """Whether something is a torch module with a config as transformers' models have it."""
    return isinstance(model, nn.Module) and callable(getattr(getattr(model, "config", None), "to_dict", None))


def rotary_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that form cos and sin, by path: those that hold inverse frequencies, or are named after them."""
    return {path: module for path, module in model.named_modules() if _forms(module)}


def _forms(module: nn.Module) -> bool:
    holds = any(name.endswith("inv_freq") for name, _ in module.named_buffers(recurse=False))
    if holds and "position_ids" in signature(module.forward).parameters:
        return True
    leaf = not any(True for _ in module.children())
    return leaf and bool(FORMS.search(type(module).__name__)) and not list(module.parameters(recurse=False))


def callers(model: nn.Module) -> Iterator[Caller]:
    """Modules whose own methods call a function that turns."""
    known: dict[type, tuple[dict[str, Callable], tuple[str, ...]]] = {}
    for path, module in model.named_modules():
        cls = type(module)
        if cls not in known:
            known[cls] = _calls(cls)
        functions, methods = known[cls]
        if functions:
            yield Caller(path, module, functions, methods)


def turning_methods(model: nn.Module) -> Iterator[tuple[str, str]]:
    """``(path, name)`` of modules that turn in a method of their own, which sees the whole module."""
    for path, module in model.named_modules():
        for base in type(module).__mro__:
            yield from (
                (path, n) for n, f in vars(base).items() if TURNS_ITSELF.search(n) and isinstance(f, FunctionType)
            )


def nothing_turns(model: nn.Module) -> str:
    """Why nothing in a model turns, whatever its rotary modules form; empty where something does, or may."""
    config: Any = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    none = getattr(text, "num_hidden_layers", None) == 0 and not any(True for _ in callers(model))
    return "nothing turns: the model has 0 layers" if none else ""


def taken(module: nn.Module, methods: Iterable[str]) -> str:
    """Why a class of its own would not reach a module: something has set these methods on the instance itself."""
    held = [name for name in methods if name in vars(module)]
    return f"its {held[0]} was replaced by something else (device hooks do that)" if held else ""


def _calls(cls: type) -> tuple[dict[str, Callable], tuple[str, ...]]:
    functions: dict[str, Callable] = {}
    methods = []
    own = {name: value for base in reversed(cls.__mro__) if base is not nn.Module for name, value in vars(base).items()}
    for name, value in own.items():
        if isinstance(value, staticmethod) and TURNS.search(name):
            functions[name] = value.__func__
            continue
        function = getattr(value, "__func__", value)
        found = {n: f for n, f in globals_of(function).items() if TURNS.search(n) and callable(f)}
        if found:
            functions |= found
            methods.append(name)
    return functions, tuple(methods)


def nearest(path: str, paths: list[str]) -> list[str]:
    """Those of ``paths`` that hang on the lowest common branch with ``path``.

    >>> nearest("text.layers.0.attn", ["text.rotary", "vision.rotary"])
    ['text.rotary']
    """
    steps = path.split(".")
    for n in range(len(steps), -1, -1):
        branch = ".".join(steps[:n])
        if found := [p for p in paths if not branch or p == branch or p.startswith(branch + ".")]:
            return found
    return []


def part_of(config: Any, root: Any) -> str | None:
    """The dotted path of a config inside the model's: the very object, else the only one of its class."""
    inside = dict(configs_of(root))
    for path, value in inside.items():
        if value is config:
            return path
    same = [path for path, value in inside.items() if type(value) is type(config)]
    return same[0] if len(same) == 1 else None


def configs_of(config: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every config inside a config, itself first, with its dotted path."""
    yield path, config
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type") and depth < 5:
            yield from configs_of(value, f"{path}.{name}" if path else name, depth + 1)
