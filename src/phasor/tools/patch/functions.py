"""The functions of a model in which its queries and keys were seen to turn, and every call of them in one more run.

A function can be replaced in one module alone where it is a method of the module, or where one of the module's methods
finds it under a name of its own: a global one, that of a static method, or a local one, which it defines or imports.
The same holds for the objects that a module calls, as diffusers' attention processors are.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...eye.call import Call, left_alone
from ...support.transformers_log import quiet
from .swap import globals_of, original_class, owners, wrapping

Kind = Literal["method", "static method", "function", "local"]


@dataclass(frozen=True)
class SeenCall:
    """One call: arguments by parameter (without ``self``), and the result."""

    arguments: dict[str, Any]
    result: Any


@dataclass(eq=False)
class Holder:
    """A function as its ``owner`` reaches it: under ``name``, in its ``method``, which may be the function itself.

    The owner is a module, or an object that a module calls.
    """

    owner: Any
    name: str
    method: str
    kind: Kind
    function: Callable
    code: CodeType
    calls: list[SeenCall] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.code.co_qualname} ({Path(self.code.co_filename).name}:{self.code.co_firstlineno})"

    @property
    def pure(self) -> bool:
        """Whether it can know its arguments alone: frequencies that a module trains are in none of them."""
        return self.kind != "method" and not inspect.unwrap(self.function).__closure__  # type: ignore[attr-defined]

    def run(self, **arguments: Any) -> Any:
        return self.function(*[self.owner] * (self.kind == "method"), **arguments)

    def like(self, other: "Holder") -> bool:
        """Whether both are the same code of the same class."""
        return self.code is other.code and type(self.owner) is type(other.owner)


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
        self.owners, self.codes = {id(owner) for owner in owners(model).values()}, codes
        self.found: dict[tuple[int, CodeType], Holder] = {}
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
        key = id(owner), code
        if key not in self.found:
            reached = _reached(owner, code, caller)
            if reached is None:
                return None
            self.found[key] = Holder(owner, *reached, code)
        return self.found[key]

    def _owner(self, frame: FrameType) -> Any:
        """The module, or the object that a module calls, of whose class the running function is a method."""
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        first = frame.f_locals.get(names[0]) if names else None
        return first if id(first) in self.owners and _member(type(first), frame.f_code) else None


def parameters(code: CodeType, takes_self: bool) -> list[str] | None:
    """Names of the parameters that a call may give by name; None where there are others."""
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_posonlyargcount > takes_self:
        return None
    return list(code.co_varnames[takes_self : code.co_argcount + code.co_kwonlyargcount])


def _reached(owner: Any, code: CodeType, caller: FrameType) -> tuple[str, str, Kind, Callable] | None:
    """Name, method, kind and function, if the running method of the owner, or its class, knows one with that code."""
    cls = original_class(owner) or type(owner)
    method = _member(cls, caller.f_code)
    if method is None:
        return None
    if caller.f_code is code:
        return method, method, "method", getattr(cls, method)
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, staticmethod) and _has(value.__func__, code):
                return name, method, "static method", value.__func__
    known = globals_of(getattr(cls, method))
    for name, value in known.items():
        if _has(value, code):
            return name, method, "function", value
    for name, value in caller.f_locals.items():
        if _has(value, code) and wrapping(getattr(cls, method), (name,)):
            return name, method, "local", value
    return None


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
