"""The models' own rotary code, called outside their models: a module that forms cos and sin, a function that turns.

Which module and which function belong to a config is read from the source (`source`): those that a model of the config
reaches. In which shape they take positions and heads is found by trying: the numbers of heads, tokens and channels are
all different, so a wrong shape raises or gives another one.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .source import Name, read_source, rotating
from .walk import borrowed, quiet

FORMS = re.compile(r"(Rotary|Rope|RoPE)\w*Embedding$")
TURNS = re.compile(r"^_?(vision_)?apply_\w*(rot|rope)")
HEADS = (3, 2)  # of q and of k
Pair = tuple[Tensor, Tensor]


@cache
def code_of(config_name: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The classes that form cos and sin for a config, and the functions that turn."""
    source = read_source()
    names: dict[Name, None] = {}
    for name in rotating().get(config_name, ()) or borrowed().get(config_name, ()):
        names |= dict.fromkeys(sorted(source.reached(name)))
    files = {name[:2] for name in names}
    if not any(FORMS.search(name[2]) for name in names):  # formed by a module that another config stands for
        names |= dict.fromkeys(n for n in sorted(source.refers) if n[:2] in files)
    modules = [_load(n) for n in names if FORMS.search(n[2])]
    functions = [_load(n) for n in names if TURNS.search(n[2])]
    return tuple(m for m in modules if inspect.isclass(m)), tuple(f for f in functions if inspect.isfunction(f))


@cache
def functions_for(config_name: str, part: str) -> tuple[Any, ...]:
    """Those that turn which the classes of an indexer call, or those that all others do: a file may have both."""
    functions = code_of(config_name)[1]
    return tuple(one for one in functions if (part == "indexer") in _called_by_an_indexer(one)) or functions


def _called_by_an_indexer(function: Any) -> set[bool]:
    """Whether the classes of its file that call it are indexers."""
    text = Path(inspect.getfile(function)).read_text(encoding="utf-8")
    classes = re.findall(r"^class (\w+)(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return {"Indexer" in name for name, body in classes if re.search(rf"\b{function.__name__}\(", body)}


def _load(name: Name) -> Any:
    with quiet():
        return getattr(importlib.import_module(f"transformers.models.{name[0]}.{name[1]}"), name[2], None)


def modules_for(config: Any) -> Iterator[torch.nn.Module]:
    """The modules that form cos and sin, built from a config; several where they depend on the layer (Molmo 2)."""
    classes, _ = code_of(type(config).__name__)
    for cls in classes:
        switched = "scaled" in inspect.signature(cls.__init__).parameters
        for more in ({"scaled": True}, {"scaled": False}) if switched else ({},):
            with quiet():
                try:
                    yield cls(config, **more).eval()
                except Exception:
                    continue


def tables(module: Any, word: str, positions: Tensor, dtype: torch.dtype) -> Iterator[Any]:
    """What the module returns for positions ``[axes, S]``, in every shape that it takes."""
    parameters = inspect.signature(module.forward).parameters
    if "position_ids" not in parameters:
        return
    if "layer_type" in parameters and hasattr(module, "layer_types") and word not in module.layer_types:
        word = "main" if word == "sliding_attention" else "compress"  # DeepSeek-V4's own names
    # ESM's parameter has no use: its module knows no types
    more = {"layer_type": word} if "layer_type" in parameters and module.rope_type else {}
    axes, length = positions.shape
    shapes = [positions, positions.T, positions.T[None]]
    if axes > 1:
        shapes = [positions[:, None], *shapes]
    for position_ids in shapes:
        x = torch.zeros(1, length, 4, dtype=dtype)
        with quiet(), torch.no_grad():
            try:
                yield module(x, position_ids, **more)
            except Exception:
                continue


def turned(function: Callable[..., Any], given: Any, q: Tensor, k: Tensor, positions: Tensor) -> Iterator[Pair]:
    """q ``[1, H, S, D]`` and k as the function turns them, in every order of heads and tokens that it takes."""
    parameters = inspect.signature(function).parameters
    names = tuple(parameters)
    orders: dict[str, Callable[[Tensor], Tensor]] = {
        "bhsd": lambda x: x,
        "bshd": lambda x: x.transpose(1, 2),
        "shd": lambda x: x[0].transpose(0, 1),
    }
    for order, there in orders.items():
        for extra in ({}, {"unsqueeze_dim": 2}, {"unsqueeze_dim": 0}):
            if extra and "unsqueeze_dim" not in names:
                continue
            try:
                result = _call(function, names, given, there(q), there(k), extra, positions)
            except Exception:
                continue
            back = [r[None].transpose(1, 2) if order == "shd" else there(r) for r in result]
            if [r.shape for r in back] == [q.shape, k.shape]:
                yield back[0], back[1]


def _call(
    function: Callable[..., Any],
    names: tuple[str, ...],
    given: Any,
    q: Tensor,
    k: Tensor,
    extra: dict[str, Any],
    positions: Tensor,
) -> tuple[Tensor, Tensor]:
    if isinstance(given, Tensor):  # complex numbers
        result = function(q, k, given)
        return result[0], result[1]
    cos, sin = given
    if names[:2] == ("q", "k"):
        result = function(q, k, cos, sin, **extra)
        return result[0], result[1]
    if names[:3] == ("tensor", "sin", "cos"):
        return function(q, sin, cos), function(k, sin, cos)
    if "position_ids" in names:
        extra = {**extra, "position_ids": positions.T[None]}
    return function(q, cos, sin, **extra), function(k, cos, sin, **extra)
