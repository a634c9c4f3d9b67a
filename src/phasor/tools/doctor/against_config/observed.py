"""What reaches attention: the q and k of a real call, by the tables of the call and by tables that rotate nothing."""

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

NAMED = re.compile(r"position_embeddings|rotary|rope|freqs|^cos$|^sin$", re.IGNORECASE)


class Caught(BaseException):
    """Carries q, k and the softmax scale (None: the usual one) out of a call that need not go on."""

    def __init__(self, q: Tensor, k: Tensor, scale: float | None) -> None:
        self.q, self.k, self.scale = q, k, scale


@dataclass
class Calls:
    """The first call of every module that was watched: its arguments by name."""

    first: dict[nn.Module, dict[str, Any]] = field(default_factory=dict)

    def note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module not in self.first:
            with contextlib.suppress(TypeError):
                bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
                more = bound.pop("kwargs", {})
                self.first[module] = {**bound, **more}


@contextlib.contextmanager
def watched(modules: list[nn.Module]) -> Iterator[Calls]:
    """Keeps the first call of each of the modules while it is on."""
    calls = Calls()
    with contextlib.ExitStack() as undo:
        for module in modules:
            undo.callback(module.register_forward_pre_hook(calls.note, with_kwargs=True).remove)
        yield calls


@contextlib.contextmanager
def caught_at_attention() -> Iterator[None]:
    """Inside, whatever transformers takes for attention raises `Caught`, and PyTorch's own attention too."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    def catch(module: Any, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise Caught(query, key, kwargs.get("scaling"))

    def catch_of_torch(query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise Caught(query, key, kwargs.get("scale"))

    own = torch.nn.functional.scaled_dot_product_attention
    vars(functions)["get_interface"] = lambda *args, **kwargs: catch
    torch.nn.functional.scaled_dot_product_attention = catch_of_torch  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = own
        del vars(functions)["get_interface"]


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


def heads_of(module: nn.Module, given: dict[str, Any]) -> Caught | str:
    """q and k ``[B, H, S, D]`` as they reach attention in a call of a module, or why they are not seen."""
    try:
        with caught_at_attention(), torch.no_grad():
            module(**given)
    except Caught as caught:
        return caught
    except Exception as error:
        return f"{type(module).__name__} cannot be called by itself: {type(error).__name__}: {error!s:.80}"
    return f"{type(module).__name__} calls no attention that could be watched"


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


def tables_in(given: dict[str, Any]) -> Any:
    """The tables among the arguments of a call: a pair of tensors, or a complex one; None where there are none."""
    for name, value in given.items():
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


def rotating_nothing(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call with tables that rotate nothing."""
    tables = tables_in(given)
    return {name: still(value) if value is tables and value is not None else value for name, value in given.items()}


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
    made = torch.Generator("cpu").manual_seed(seed)

    def instead(module: nn.Module, args: Any, result: Any) -> Any:
        if isinstance(result, Tensor) and result.is_complex():
            return torch.complex(*rotated(result.real, result.imag))
        return type(result)(rotated(*result)) if _is_pair(result) else result

    def rotated(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        angles = (torch.randint(2, cos.shape, generator=made, device="cpu") * 2 - 1).to(cos) * by
        return cos - sin * angles, sin + cos * angles

    with contextlib.ExitStack() as undo:
        for module in modules:
            undo.callback(module.register_forward_hook(instead).remove)
        yield


def is_formed_here(module: nn.Module, given: dict[str, Any], k: Tensor) -> bool:
    """Whether a module makes its k of its own hidden states, and not another's keys."""
    states = next((n for n, x in given.items() if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1), None)
    if states is None:
        return False
    moved = heads_of(module, {**given, states: given[states].flip(-1) + 1})
    return isinstance(moved, str) or not torch.equal(moved.k, k)
