"""One call of a model that can be repeated, with other positions too; the model is left as it was, to the bit."""

import contextlib
import inspect
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..support.errors import first_line
from ..support.preserve_state import undisturbed
from ..support.transformers_log import quiet
from .attention import attentions
from .tape import Tape, record

# Tensors of these names say where tokens stand, or how many there are, not what they are.
NO_CONTENTS = re.compile(
    r"pos|grid|mask|length|time|step|size|cache|shape|offset|seqlens|rope|rotary|ind(ic|ex)es|lens$|(img|txt)_ids"
)
POSITIONS = re.compile(r"^(position_ids|positions?|pos_ids|pos|input_pos|input_positions)$")
OF_EVERY_MODULE = vars(nn.Module()).keys()

ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError, AssertionError)


class CannotRun(ValueError):
    """The model could not be run on these inputs."""


@dataclass(frozen=True)
class Call:
    """``model(*args, **kwargs)``; ``made_up``: nobody gave the arguments."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    made_up: bool = False

    @property
    def named(self) -> dict[str, Any]:
        return dict(self.kwargs or {})

    @property
    def contents(self) -> list[Tensor]:
        """The tensors that say what the tokens are."""
        names = list(_parameters(self.model))
        by_name = dict(zip(names, self.args, strict=False)) | self.named
        named = [v for n, v in by_name.items() if not NO_CONTENTS.search(n)]
        lists = [t for v in named if isinstance(v, list | tuple) for t in v if isinstance(t, Tensor)]
        given = [v for v in named if isinstance(v, Tensor)]
        return given + lists or [v for v in by_name.values() if isinstance(v, Tensor)]

    @property
    def takes_positions(self) -> str:
        """The parameter that takes positions; empty where there is none."""
        return next((name for name in _parameters(self.model) if POSITIONS.match(name)), "")

    @property
    def positions(self) -> Tensor | None:
        """Those that the call gives."""
        by_name = dict(zip(_parameters(self.model), self.args, strict=False)) | self.named
        given = by_name.get(self.takes_positions)
        return given if isinstance(given, Tensor) else None

    def at(self, positions: Tensor) -> "Call":
        """The same call at other positions, ``[batch, tokens]`` or ``[axes, batch, tokens]``."""
        positions = positions.to(self.contents[0].device)
        return replace(self, kwargs=self.named | {self.takes_positions: positions})

    def run(self) -> Any:
        return self.model(*self.args, **self.named)

    def tape(self, before: "Call | None" = None) -> Tape:
        """The recorded call, after one of ``before``. Raises `CannotRun` with what the model raised.

        Made-up inputs may not bring a model to its end: what it did until then is a tape, too, if it has attentions.
        """
        with left_alone(self.model), quiet():
            try:
                if before is not None:
                    before.run()
                tape = record(self.run, self.model, self.contents)
            except ERRORS as error:
                raise self._cannot(error) from error
        if tape.raised is not None and not (self.made_up and attentions(tape)):
            raise self._cannot(tape.raised) from tape.raised
        return tape

    def _undivided(self) -> str:
        """The rule that the sides of a picture break which its patches do not divide; empty where they do."""
        config: Any = getattr(self.model, "config", None)
        patch = config.get("patch_size") if isinstance(config, Mapping) else None
        parts = (patch, patch) if isinstance(patch, int) else tuple(patch or ())
        pictures = [x.shape[-len(parts) :] for x in self.contents if x.ndim > 3]
        if not any(side % part for sides in pictures for side, part in zip(sides, parts, strict=False)):
            return ""
        return f"; sides of a picture must be whole numbers of its patches, {patch}"

    def _cannot(self, error: Exception) -> CannotRun:
        said = f"{type(error).__name__}: {first_line(error)}"[:200]
        wants = ", ".join(_parameters(self.model))[:160]
        return CannotRun(
            f"the model could not be run: {said}{self._undivided()}; give inputs=, what its forward takes ({wants})"
        )


def _parameters(model: nn.Module) -> list[str]:
    try:
        return [n for n, p in inspect.signature(model.forward).parameters.items() if p.kind is not p.VAR_KEYWORD]
    except (TypeError, ValueError):
        return []


@contextlib.contextmanager
def left_alone(model: nn.Module) -> Iterator[None]:
    """Attributes, what lists among them hold, modes, hooks, random numbers, and tensors that are no weights."""
    own = [value for m in model.modules() for value in (*m._buffers.values(), *_attributes(m))]
    holders = [(value, value.copy()) for value in own if type(value) in (list, dict, set)]
    kept = [t for t in tree_leaves(own) if isinstance(t, Tensor)]
    kept = [t for t in kept if not t.is_meta and not t.is_inference()]
    before = [(t, t._version, t.detach().clone()) for t in kept]
    chance = random.getstate()
    with undisturbed(model), torch.compiler.set_stance("force_eager"):
        try:
            yield
        finally:
            random.setstate(chance)
            for holder, contents in holders:
                _refill(holder, contents)
            for tensor, version, value in before:
                if tensor._version != version:
                    tensor.detach().copy_(value)


def _attributes(module: nn.Module) -> list[Any]:
    """What a model's own code keeps on a module."""
    return [value for name, value in vars(module).items() if name not in OF_EVERY_MODULE]


def _refill(holder: Any, contents: Any) -> None:
    holder.clear()
    holder.extend(contents) if isinstance(holder, list) else holder.update(contents)


def call_of(model: nn.Module, inputs: Any) -> Call:
    """The call that ``inputs`` stand for: a dictionary of arguments, a tuple of them, or the only one."""
    if isinstance(inputs, Mapping) or hasattr(inputs, "keys"):
        return Call(model, (), {name: inputs[name] for name in inputs})
    return Call(model, tuple(inputs) if isinstance(inputs, tuple) else (inputs,))
