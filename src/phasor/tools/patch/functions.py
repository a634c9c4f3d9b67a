"""The functions of a model in which its queries and keys were seen to turn, and every call of them in one more run.

A function can be replaced in one module alone where it is a method of the module, or where one of the module's methods
finds it under a name of its own: a global one, or that of a static method.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...eye.call import Call, left_alone
from ...support.transformers_log import quiet
from .swap import globals_of, original_class


@dataclass(frozen=True)
class SeenCall:
    """One call: arguments by parameter (without ``self``), and the result."""

    arguments: dict[str, Any]
    result: Any


@dataclass(eq=False)
class Holder:
    """A function as one ``module`` reaches it: under ``name``, in its ``method``, which may be the function itself."""

    module: nn.Module
    name: str
    method: str
    kind: Literal["method", "static method", "function"]
    function: Callable
    code: CodeType
    calls: list[SeenCall] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.code.co_qualname} ({Path(self.code.co_filename).name}:{self.code.co_firstlineno})"

    @property
    def pure(self) -> bool:
        """Whether it can know its arguments alone: frequencies that a module trains are in none of them."""
        return self.kind != "method" and not inspect.unwrap(self.function).__closure__  # type: ignore[attr-defined]

    def run(self, arguments: Mapping[str, Any]) -> Any:
        if self.kind == "method":
            return self.function(self.module, **arguments)
        return self.function(**arguments)

    def like(self, other: "Holder") -> bool:
        """Whether both are the same code of the same class."""
        return self.function is other.function and type(self.module) is type(other.module)


def holders(call: Call, codes: set[CodeType]) -> list[Holder]:
    """Those of the functions with these codes that a module reaches, with what they were given in one run of a model.

    The model is left as it was. Functions that take ``*args`` or give no
    result are not among them.
    """
    recorder = _Recorder(call.model, codes)
    before = sys.getprofile()
    with left_alone(call.model), quiet(), torch.no_grad():
        sys.setprofile(recorder)
        try:
            call.run()
        finally:
            sys.setprofile(before)
    return [holder for holder in recorder.found.values() if holder.calls]


class _Recorder:
    """A profiler: it is told of every call and return of a Python function."""

    def __init__(self, model: nn.Module, codes: set[CodeType]) -> None:
        self.modules, self.codes = set(model.modules()), codes
        self.found: dict[tuple[nn.Module, CodeType], Holder] = {}
        self._running: dict[FrameType, tuple[Holder, dict[str, Any]]] = {}

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and frame.f_code in self.codes:
            holder = self._holder(frame)
            names = None if holder is None else parameters(frame.f_code, holder.kind == "method")
            if holder is not None and names is not None:
                self._running[frame] = holder, {name: _copied(frame.f_locals[name]) for name in names}
        elif event == "return" and frame in self._running:
            holder, arguments = self._running.pop(frame)
            if value is not None:
                holder.calls.append(SeenCall(arguments, _copied(value)))

    def _holder(self, frame: FrameType) -> Holder | None:
        code, caller = frame.f_code, frame
        while caller is not None and (owner := self._owner(caller)) is None:
            caller = caller.f_back  # type: ignore[assignment]
        if caller is None:
            return None
        assert owner is not None
        key = owner, code
        if key not in self.found:
            reached = _reached(owner, code, caller.f_code)
            if reached is None:
                return None
            self.found[key] = Holder(owner, *reached, code)
        return self.found[key]

    def _owner(self, frame: FrameType) -> nn.Module | None:
        """The module of whose class the running function is a method."""
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        first = frame.f_locals.get(names[0]) if names else None
        if not isinstance(first, nn.Module) or first not in self.modules:
            return None
        return first if _member(type(first), frame.f_code) else None


def parameters(code: CodeType, takes_self: bool) -> list[str] | None:
    """Names of the parameters that a call may give by name; None where there are others."""
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_posonlyargcount > takes_self:
        return None
    return list(code.co_varnames[takes_self : code.co_argcount + code.co_kwonlyargcount])


def _reached(
    module: nn.Module, code: CodeType, caller: CodeType
) -> tuple[str, str, Literal["method", "static method", "function"], Callable] | None:
    """Name, method, kind and function, if a method of the module, or the module itself, knows one with that code."""
    cls = original_class(module) or type(module)
    method = _member(cls, caller)
    if method is None:
        return None
    if caller is code:
        return method, method, "method", getattr(cls, method)
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, staticmethod) and _has(value.__func__, code):
                return name, method, "static method", value.__func__
    known = globals_of(getattr(cls, method))
    found = next((name for name, value in known.items() if _has(value, code)), None)
    return None if found is None else (found, method, "function", known[found])


def _has(value: Any, code: CodeType) -> bool:
    return isinstance(value, FunctionType) and inspect.unwrap(value).__code__ is code


def _member(cls: type, code: CodeType) -> str | None:
    """The name under which a class has a method with that code, and does not override it."""
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if _has(value, code):
                return name if getattr(cls, name, None) is value else None
    return None


def _copied(value: Any) -> Any:
    return tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, value)
