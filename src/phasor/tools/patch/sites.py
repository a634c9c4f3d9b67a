"""Where a model uses positions: modules that form cos and sin, that rotate q and k, that store tables."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import signature
from types import FunctionType
from typing import Any, Literal

from torch import nn

from .swap import globals_of, members

FORMS_TABLES = re.compile(r"rotary|rope", re.IGNORECASE)
ROTATES = re.compile(r"^(vision_)?apply_(multidimensional_)?(rotary|rope)")
ROTATES_ITSELF = re.compile(r"^_?apply_(rotary|rope)|^rotate_queries")
STORED = ("embed_positions", "weight")  # names of stored tables: a buffer, or an embedding's weight


@dataclass(frozen=True, eq=False)
class PatchSite:
    """One place in a model, by ``kind``:

    - ``"tables"``: a module that forms cos and sin.
    - ``"functions"``: a module whose ``methods`` call ``functions`` (by name) that rotate q and k.
    - ``"method"``: a module that rotates in a method of its own, ``name``.
    - ``"stored table"``: a module that keeps a table of positions under ``name``.
    """

    path: str
    module: nn.Module
    kind: Literal["tables", "functions", "method", "stored table"]
    name: str = ""
    functions: dict[str, Callable] = field(default_factory=dict)
    methods: tuple[str, ...] = ()


def find(model: nn.Module) -> list[PatchSite]:
    """All sites of a model; those that form tables come first, because the others are matched by what they form."""
    return [
        *(PatchSite(path, module, "tables") for path, module in rotary_modules(model).items()),
        *callers(model),
        *(PatchSite(path, model.get_submodule(path), "method", name) for path, name in rotating_methods(model)),
        *(PatchSite(path, module, "stored table", name) for path, (module, name) in stored_tables(model).items()),
    ]


def has_config(model: Any) -> bool:
    """Whether something is a torch module with a config as transformers' models have it."""
    return isinstance(model, nn.Module) and callable(getattr(getattr(model, "config", None), "to_dict", None))


def rotary_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that form cos and sin, by path: those that hold inverse frequencies, or are named after them."""
    return {path: module for path, module in model.named_modules() if _forms_tables(module)}


def _forms_tables(module: nn.Module) -> bool:
    if STORED[0] in module._buffers:  # it looks up rows of a table that it keeps (GPT-J since transformers 5.24)
        return False
    holds = any(name.endswith("inv_freq") for name, _ in module.named_buffers(recurse=False))
    if holds and "position_ids" in signature(module.forward).parameters:
        return True
    leaf = not any(True for _ in module.children())
    named = bool(FORMS_TABLES.search(type(module).__name__))
    return leaf and named and not list(module.parameters(recurse=False))


def callers(model: nn.Module) -> Iterator[PatchSite]:
    """Modules whose own methods call a function that rotates."""
    calls: dict[type, tuple[dict[str, Callable], tuple[str, ...]]] = {}
    for path, module in model.named_modules():
        cls = type(module)
        if cls not in calls:
            calls[cls] = rotating_calls(cls)
        functions, methods = calls[cls]
        if functions:
            yield PatchSite(path, module, "functions", functions=functions, methods=methods)


def rotating_calls(cls: type) -> tuple[dict[str, Callable], tuple[str, ...]]:
    """The functions that a class calls to rotate, by name, and those of its methods that call them."""
    functions: dict[str, Callable] = {}
    methods = []
    for name, value in members(cls).items():
        if isinstance(value, staticmethod) and ROTATES.search(name):
            functions[name] = value.__func__
            continue
        called = {n: f for n, f in globals_of(value).items() if ROTATES.search(n) and callable(f)}
        if called:
            functions |= called
            methods.append(name)
    return functions, tuple(methods)


def rotating_methods(model: nn.Module) -> Iterator[tuple[str, str]]:
    """``(path, name)`` of modules that rotate in a method of their own, which sees the whole module."""
    for path, module in model.named_modules():
        for base in type(module).__mro__:
            yield from (
                (path, n) for n, f in vars(base).items() if ROTATES_ITSELF.search(n) and isinstance(f, FunctionType)
            )


def stored_tables(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Modules that store a table of positions, by path: a buffer of that name, or a frozen embedding of sinusoids."""
    tables = {}
    for path, module in model.named_modules():
        sinusoids = isinstance(module, nn.Embedding) and "Sinusoidal" in type(module).__name__
        name = STORED[1] if sinusoids else STORED[0]
        table = module._buffers.get(name) if not sinusoids else module.weight
        if table is not None and table.ndim == 2 and not table.requires_grad:
            tables[path] = (module, name)
    return tables


def nothing_rotates(model: nn.Module) -> str:
    """Why nothing in a model rotates, whatever its rotary modules form; empty where something does, or may."""
    config: Any = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    no_layers = getattr(text, "num_hidden_layers", None) == 0 and not any(True for _ in callers(model))
    return "nothing rotates: the model has 0 layers" if no_layers else ""


def replaced_on_instance(module: nn.Module, methods: Iterable[str]) -> str:
    """Why a new class would not reach a module: something has set these methods on the instance itself."""
    names = [name for name in methods if name in vars(module)]
    return f"its {names[0]} was replaced by something else (device hooks do that)" if names else ""


def nearest(path: str, paths: Sequence[str]) -> list[str]:
    """Those of ``paths`` that hang on the lowest common branch with ``path``.

    >>> nearest("text.layers.0.attn", ["text.rotary", "vision.rotary"])
    ['text.rotary']
    """
    steps = path.split(".")
    for n in range(len(steps), -1, -1):
        branch = ".".join(steps[:n])
        if near := [p for p in paths if not branch or p == branch or p.startswith(branch + ".")]:
            return near
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
