"""What a model is about to turn: the arguments of the functions that turn q and k, caught call by call."""

import contextlib
import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from phasor.tools.patch.sites import ROTATES_ITSELF, callers

from .given import run

HEADS = ("q", "k", "v", "x", "xq", "xk", "query", "key", "tensor", "query_layer", "key_layer", "value_layer", "qk",
         "query_states", "key_states")  # fmt: skip
Seen = dict[tuple[str, int, str], Tensor]  # path of the attention, number of the call, name of the variable


class Watch:
    """The arguments with which the attentions of a model turn, call by call; ``off``: they are returned unturned."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.off = model, False
        self.seen: Seen = {}
        self.stack: list[str] = []  # the modules that are running
        self.visits: Counter[str] = Counter()

    def stand_in(self, function: Any) -> Any:
        names = [n for n in inspect.signature(function).parameters if n != "self"]

        def watched(*args: Any, **kwargs: Any) -> Any:
            bound = args[1:] if args and isinstance(args[0], nn.Module) else args
            given = dict(zip(names, bound, strict=False)) | kwargs
            turned = {n: x for n, x in given.items() if n in HEADS and isinstance(x, Tensor)}
            frame = inspect.currentframe()
            self._see(turned, {id(v): n for n, v in frame.f_back.f_locals.items()})  # type: ignore[union-attr]
            if not self.off:
                return function(*args, **kwargs)
            if "k" in given and given["k"] is None:
                return *turned.values(), None
            return tuple(turned.values()) if len(turned) > 1 else next(iter(turned.values()))

        return watched

    def _see(self, turned: dict[str, Tensor], local: dict[int, str]) -> None:
        path = self.stack[-1] if self.stack else ""
        if self.visits[path] < 2:  # a layer that is run again sees what it changed itself
            call = len({c for p, c, _ in self.seen if p == path})
            for name, x in turned.items():
                self.seen[path, call, name if len(turned) > 1 else local.get(id(x), "?")] = x.detach().clone()

    def _enter(self, path: str) -> None:
        self.stack.append(path)
        self.visits[path] += 1

    def _leave(self) -> None:
        self.stack.pop()

    @contextlib.contextmanager
    def on(self) -> Iterator["Watch"]:
        with contextlib.ExitStack() as undo:
            for holder, name, function in _functions(self.model):
                kept, mine = inspect.getattr_static(holder, name), self.stand_in(function)
                setattr(holder, name, staticmethod(mine) if isinstance(kept, staticmethod) else mine)
                undo.callback(setattr, holder, name, kept)
            for path, module in self.model.named_modules():
                before = module.register_forward_pre_hook(lambda m, a, p=path: self._enter(p))
                after = module.register_forward_hook(lambda m, a, o: self._leave(), always_call=True)
                undo.callback(before.remove)
                undo.callback(after.remove)
            yield self

    def run(self, inputs: Any) -> tuple[Seen, list[Tensor]]:
        """What turned, and the model's outputs; none where its later parts do not take these inputs."""
        self.seen, self.stack, self.visits = {}, [], Counter()
        torch.manual_seed(0)
        try:
            return self.seen, run(self.model, inputs)
        except Exception:
            return self.seen, []


def _functions(model: nn.Module) -> list[tuple[Any, str, Any]]:
    """Where the functions that turn are looked up: a class or a module, the name, and the function."""
    found: dict[tuple[int, str], tuple[Any, str, Any]] = {}
    for caller in callers(model):
        for name, function in caller.functions.items():
            classes = [c for c in type(caller.module).__mro__ if name in vars(c)]
            files = [sys.modules[c.__module__] for c in type(caller.module).__mro__ if c.__module__ in sys.modules]
            holders = classes[:1] or [f for f in files if getattr(f, name, None) is function]
            found |= {(id(h), name): (h, name, function) for h in holders}
    for module in model.modules():
        for base in type(module).__mro__:
            for name, function in vars(base).items():
                if ROTATES_ITSELF.search(name) and inspect.isfunction(function):
                    found[id(base), name] = (base, name, function)
    return list(found.values())
