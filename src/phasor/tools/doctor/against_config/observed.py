"""What modules are given in a real call, and the same call with tables that rotate nothing."""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from .caught import Caught, heads_of

NAMED = re.compile(r"position_embeddings|rotary|rope|freqs|^cos$|^sin$", re.IGNORECASE)


@dataclass
class Calls:
    """The first call of every module that is watched, or is given tables: its arguments by name."""

    watched: list[nn.Module]
    first: dict[nn.Module, dict[str, Any]] = field(default_factory=dict)

    def note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = None if module in self.first else named_arguments(module, args, kwargs)
        if arguments is not None and (module in self.watched or tables_in(arguments) is not None):
            self.first[module] = arguments


def named_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call by name; None for a module that does not name them."""
    try:
        signature = inspect.signature(module.forward)
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    if any(kinds[name] is inspect.Parameter.VAR_POSITIONAL and value for name, value in bound.items()):
        return None
    others = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    more: dict[str, Any] = bound.pop(others[0], {}) if others else {}
    return {**bound, **more}


@contextlib.contextmanager
def watched(model: nn.Module, modules: list[nn.Module]) -> Iterator[Calls]:
    """Keeps, while it is on, the first call of each of the ``modules``, and of all others that are given tables."""
    calls = Calls(modules)
    with contextlib.ExitStack() as undo:
        for module in model.modules():
            undo.callback(module.register_forward_pre_hook(calls.note, with_kwargs=True).remove)
        yield calls


@contextlib.contextmanager
def code_that_runs() -> Iterator[set[CodeType]]:
    """The code of every function that is called inside."""
    seen: set[CodeType] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code))
    try:
        yield seen
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # cProfile's, which is no function before Python 3.12
            before.enable()


@contextlib.contextmanager
def projected(module: nn.Module) -> Iterator[dict[str, float]]:
    """The mean square of what ``q_proj`` and ``k_proj`` give inside; nothing where norms change it further."""
    lengths: dict[str, float] = {}
    children = dict(module.named_children())
    with contextlib.ExitStack() as undo:
        for name in ("q_proj", "k_proj") if not any("norm" in child for child in children) else ():
            if isinstance(child := children.get(name), nn.Module):
                undo.callback(child.register_forward_hook(_noted(name, lengths)).remove)
        yield lengths


def mean_square(x: Tensor) -> float:
    """Which repeating heads, as grouped queries ask for, leaves as it is."""
    return x.double().square().mean().item()


def _noted(name: str, lengths: dict[str, float]) -> Callable[[nn.Module, Any, Any], None]:
    def note(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            lengths[name] = mean_square(result)

    return note


def tables_in(arguments: dict[str, Any]) -> Any:
    """The tables among the arguments of a call: a pair of tensors, or a complex one; None where there are none."""
    for name, value in arguments.items():
        if NAMED.search(name) and (_is_pair(value) or (isinstance(value, Tensor) and value.is_complex())):
            return value
    return None


def _is_pair(value: Any) -> bool:
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
def still_modules(modules: list[nn.Module]) -> Iterator[list[Any]]:
    """Rotary modules that attentions call return tables that rotate nothing; the list holds the true ones."""
    seen: list[Any] = []

    def instead(module: nn.Module, args: Any, result: Any) -> Any:
        if _is_pair(result) or (isinstance(result, Tensor) and result.is_complex()):
            seen.append(result)
            return still(result)
        return result

    with contextlib.ExitStack() as undo:
        for module in modules:
            undo.callback(module.register_forward_hook(instead).remove)
        yield seen


@contextlib.contextmanager
def blurred_modules(modules: list[nn.Module], by: float, seed: int) -> Iterator[None]:
    """Rotary modules return tables whose angles are all off by ``by``, up or down."""
    random = torch.Generator("cpu").manual_seed(seed)

    def instead(module: nn.Module, args: Any, result: Any) -> Any:
        if isinstance(result, Tensor) and result.is_complex():
            return torch.complex(*rotated(result.real, result.imag))
        return type(result)(rotated(*result)) if _is_pair(result) else result

    def rotated(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        angles = (torch.randint(2, cos.shape, generator=random, device="cpu") * 2 - 1).to(cos) * by
        return cos - sin * angles, sin + cos * angles

    with contextlib.ExitStack() as undo:
        for module in modules:
            undo.callback(module.register_forward_hook(instead).remove)
        yield


def is_formed_here(module: nn.Module, arguments: dict[str, Any], k: Tensor) -> bool:
    """Whether a module makes its k of its own hidden states, and not another's keys."""
    states = _states_of(arguments)
    if states is None:
        return False
    moved = heads_of(module, {**arguments, states: arguments[states].flip(-1) + 1})
    return isinstance(moved, str) or not torch.equal(moved.k, k)


def rotates_by_nothing(module: nn.Module, arguments: dict[str, Any], seen: Caught) -> bool:
    """Whether equal hidden states give equal q and k at every token: then no position is in them."""
    heads = _of_equal_states(module, arguments, seen)
    return heads is not None and all(_equal(x) for x in heads)


def rotates_besides(module: nn.Module, still: dict[str, Any], seen: Caught) -> bool:
    """Whether q and k of equal hidden states still rotate with the position where tables rotate nothing.

    A rotation leaves their lengths as they are. A convolution does not, unless a norm follows it; but in the second
    half of the tokens it has equal states all around, and gives equal q and k there.
    """
    heads = _of_equal_states(module, still, seen)
    if heads is None:
        return False
    later = [x[:, :, x.shape[2] // 2 :] for x in heads]
    return all(not _equal(x) and _equal(x.norm(dim=-1, keepdim=True)) for x in later)


def _of_equal_states(module: nn.Module, arguments: dict[str, Any], seen: Caught) -> tuple[Tensor, Tensor] | None:
    """q and k of a call in which all tokens have the hidden states of the first; None where that is not seen."""
    name = _states_of(arguments)
    if name is None:
        return None
    heads = heads_of(module, {**arguments, name: arguments[name][:, :1].expand_as(arguments[name])})
    return None if isinstance(heads, str) or heads.q.shape != seen.q.shape else (heads.q.float(), heads.k.float())


def _equal(x: Tensor) -> bool:
    """Whether all tokens ``[B, H, S, D]`` are as the first one, but for rounding."""
    return bool((x - x[:, :, :1]).abs().max() <= 1e-2 * x.abs().max())


def _states_of(arguments: dict[str, Any]) -> str | None:
    """The name of the hidden states among the arguments."""
    return next(
        (n for n, x in arguments.items() if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1), None
    )
