"""Ways in which people put code of their own into a model: at the rotation, its tables, its positions, its attention.

A fault says what is computed wrongly; a `Plant` draws in which of these ways it gets into the model.
"""

import contextlib
import functools
import inspect
import itertools
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cache_argument import taken

from .random_types import Type

FUNCTIONS = ("apply_rotary_pos_emb_interleave", "apply_rotary_pos_emb", "apply_rotary_emb")
Turn = Callable[..., tuple[Tensor, Tensor]]


@dataclass
class See:
    """What the code of one attention knows of its call."""

    layer: int = -1
    cache: Any = None

    @property
    def cached(self) -> int:
        return 0 if self.cache is None else int(self.cache.get_seq_length(self.layer))

    @property
    def static(self) -> bool:
        return self.cache is not None and hasattr(self.cache.layers[self.layer], "max_cache_len")


class Around(nn.Module):
    """A module with another inside, as wrappers put them."""

    def __init__(self, inner: nn.Module, around: Any) -> None:
        super().__init__()
        self.inner, self.around = inner, around

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.around(self.inner, *args, **kwargs)


class Plant:
    """A model, what in it turns, and the style that was drawn for the fault that is put into it."""

    def __init__(self, model: Any, kind: Type, draw: random.Random, undo: contextlib.ExitStack) -> None:
        self.model, self.kind, self.draw, self.undo = model, kind, draw, undo
        self.style = ""
        self.drawn = ""  # more words for what was drawn
        self.attentions = [m for m in model.modules() if _rotates(m)]
        self.rotary = next(m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding"))
        own = inspect.unwrap(type(self.attentions[0]).forward)
        self.file = sys.modules[own.__module__]
        self.function = next(name for name in FUNCTIONS if name in own.__code__.co_names)
        (cos, sin), self.form = self._tables()
        self.pairs = cos.shape[-1] // (1 if self.form == "single" else 2)
        first = [self.columns(pair)[0] for pair in range(self.pairs)]
        at = torch.complex(cos[0, :, first], sin[0, :, first])
        self.step = at[1] * at[0].conj() / at[0].abs() ** 2  # each pair's turn from one position to the next

    def _tables(self) -> tuple[tuple[Tensor, Tensor], str]:
        """Cosines and sines at positions 1 to 4, and how a pair's lie in them."""
        x, at = torch.zeros(1, 4, 64), torch.arange(1, 5)[None]
        layer_types = getattr(self.model.config, "layer_types", ["full_attention"])
        more = (
            {"layer_type": layer_types[0]} if "layer_type" in inspect.signature(self.rotary.forward).parameters else {}
        )
        cos, sin = self._parts(self.rotary(x, at, **more))
        half = cos.shape[-1] // 2
        if torch.equal(cos[..., :half], cos[..., half:]):
            return (cos, sin), "halves"
        return (cos, sin), "interleaved" if torch.equal(cos[..., ::2], cos[..., 1::2]) else "single"

    def function_takes_one(self) -> bool:
        """Whether the file's function turns one tensor, and sine comes first (GPT-J)."""
        return "tensor" in inspect.signature(self.file_function).parameters

    @property
    def file_function(self) -> Any:
        return getattr(self.file, self.function)

    def pick(self, *options: Any) -> Any:
        return self.draw.choice(options)

    def columns(self, pair: int) -> list[int]:
        """Where a pair's cosines lie in the tables."""
        n = self.pairs
        return {"halves": [pair, pair + n], "interleaved": [2 * pair, 2 * pair + 1], "single": [pair]}[self.form]

    def planes(self, x: Tensor) -> Tensor:
        """What was turned of a head, as complex numbers, one a pair."""
        n = self.pairs
        a, b = (
            (x[..., 0 : 2 * n : 2], x[..., 1 : 2 * n : 2]) if self.kind.interleaved else (x[..., :n], x[..., n : 2 * n])
        )
        return torch.complex(a.float(), b.float())

    def written(self, planes: Tensor, x: Tensor) -> Tensor:
        """`planes` back in a head like ``x``, with the channels that do not turn from ``x``."""
        n, a, b = self.pairs, planes.real.to(x.dtype), planes.imag.to(x.dtype)
        turned = torch.stack((a, b), -1).flatten(-2) if self.kind.interleaved else torch.cat((a, b), -1)
        return torch.cat((turned, x[..., 2 * n :]), -1)

    # ---- the rotation itself ---------------------------------------------------------------------------------------

    def turn(self, wrong: Callable[..., Any], of_layer: bool = False) -> None:
        """``wrong(turn, q, k, cos, sin, see) -> (q, k)`` in place of the rotation; ``of_layer``: it looks at `See`."""
        self.style = self.pick("own class", "instance forward", *["module function"] * (not of_layer))
        if self.style == "module function":
            made = functools.wraps(self.file_function)(self._adapted(wrong, See()))
            self.undo.callback(setattr, self.file, self.function, self.file_function)
            setattr(self.file, self.function, made)
            return
        for layer, attention in enumerate(self.attentions):
            see = See(layer=getattr(attention, "layer_idx", layer))
            forward = self._forward(attention, self._adapted(wrong, see), see)
            if self.style == "own class":
                own = type(attention)
                attention.__class__ = type(f"Own{own.__name__}", (own,), {"forward": forward, "__module__": __name__})
            else:
                attention.forward = types.MethodType(forward, attention)

    def _forward(self, attention: nn.Module, turn: Any, see: See) -> Any:
        """The attention's own code with another rotation, as in a file of one's own."""
        code = inspect.unwrap(type(attention).forward)
        own = types.FunctionType(
            code.__code__, {**code.__globals__, self.function: turn}, "forward", code.__defaults__, code.__closure__
        )
        own.__kwdefaults__ = code.__kwdefaults__

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            see.cache = next((v for v in kwargs.values() if hasattr(v, "get_seq_length")), None)  # of any name
            return own(self, *args, **kwargs)

        return forward

    def _adapted(self, wrong: Callable[..., Any], see: See) -> Any:
        """`wrong` with the arguments of the file's own function."""
        function = self.file_function
        if self.function_takes_one():
            return self._one(wrong, see)
        if "freqs_cis" in inspect.signature(function).parameters:

            def in_complex(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
                return function(q, k, torch.complex(cos, sin))

            return lambda q, k, table: wrong(in_complex, q, k, table.real, table.imag, see)

        def adapted(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            return wrong(lambda *tensors: function(*tensors, *args, **kwargs), q, k, cos, sin, see)

        return adapted

    def _one(self, wrong: Callable[..., Any], see: See) -> Any:
        """A function of one tensor ``[B, S, H, D]``: keys are turned first, then queries."""
        function, calls = self.file_function, itertools.count(1)

        def turn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
            return tuple(function(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k))

        def one(x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
            x = x.transpose(1, 2)
            return wrong(turn, x, x, cos, sin, see)[next(calls) % 2].transpose(1, 2)

        return one

    # ---- tables and positions --------------------------------------------------------------------------------------

    def _parts(self, raw: Any) -> tuple[Tensor, Tensor]:
        """Cosine and sine of what a rotary module gives."""
        if not isinstance(raw, tuple):
            return raw.real, raw.imag
        return raw[::-1] if self.function_takes_one() else raw

    def _of_tables(self, change: Callable[..., Any], raw: Any, *at: Any) -> Any:
        cos, sin = change(*self._parts(raw), *at)
        if not isinstance(raw, tuple):
            return torch.complex(cos, sin)
        return (sin, cos) if self.function_takes_one() else (cos, sin)

    def tables(self, change: Callable[..., Any], layers: slice | None = None) -> None:
        """``change(cos, sin, positions) -> (cos, sin)``, of the rotary module; in ``layers`` without positions."""
        if layers is not None:
            self.style = "attention hook"
            for attention in self.attentions[layers]:
                attention.register_forward_pre_hook(functools.partial(self._given, change), with_kwargs=True)
            return

        def around(forward: Any, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
            return self._of_tables(change, forward(x, position_ids, *args, **kwargs), position_ids)

        self._around_rotary(around, ("rotary forward", "rotary class", "rotary hook", "rotary module replaced"))

    def _given(self, change: Any, module: Any, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "position_embeddings": self._of_tables(change, kwargs["position_embeddings"], None)}

    def positions(self, change: Callable[..., Tensor], *drawn: int, text: bool = True) -> None:
        """``change(positions [B, S], *drawn) -> positions``, at the rotary module or the text model."""

        def around(forward: Any, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
            return forward(x, change(_rows(position_ids, x), *drawn), *args, **kwargs)

        styles = (
            "rotary forward",
            "rotary class",
            "rotary hook",
            *(("text forward",) if text and self.kind.causal else ()),
        )
        self._around_rotary(around, styles, lambda at, mask: change(at, *drawn))

    def _around_rotary(self, around: Any, styles: tuple[str, ...], change: Any = None) -> None:
        self.style = self.pick(*styles)
        rotary, cls = self.rotary, type(self.rotary)
        if self.style == "rotary forward":
            rotary.forward = functools.partial(around, rotary.forward)
        elif self.style == "rotary class":

            def forward(self: Any, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
                return around(functools.partial(cls.forward, self), x, position_ids, *args, **kwargs)

            rotary.__class__ = type(f"Own{cls.__name__}", (cls,), {"forward": forward, "__module__": __name__})
        elif self.style == "rotary module replaced":
            self.replace_rotary(Around(rotary, around))
        elif self.style == "rotary hook" and change is None:

            def after(module: Any, args: Any, kwargs: Any, out: Any) -> Any:
                return around(lambda *a, **kw: out, *args, **kwargs)

            rotary.register_forward_hook(after, with_kwargs=True)
        elif self.style == "rotary hook":

            def before(module: Any, args: Any, kwargs: Any) -> Any:
                return around(lambda *a, **kw: (a, kw), *args, **kwargs)

            rotary.register_forward_pre_hook(before, with_kwargs=True)
        else:
            self.text(change)

    def replace_rotary(self, module: nn.Module) -> None:
        path = next(name for name, known in self.model.named_modules() if known is self.rotary)
        self.model.set_submodule(path, module)

    def text(self, change: Callable[[Tensor, Any], Tensor]) -> None:
        """``change(positions [B, S], mask, or the embeddings that are given)`` in the text model's forward."""
        self.style = "text forward"
        inner = self.model.base_model
        forward = inner.forward

        def other(input_ids: Tensor | None = None, position_ids: Tensor | None = None, **kwargs: Any) -> Any:
            tokens = kwargs["inputs_embeds"] if input_ids is None else input_ids
            if position_ids is None:
                cache = taken(kwargs)
                position_ids = torch.arange(tokens.shape[1])[None] + (0 if cache is None else cache.get_seq_length())
            given = kwargs.get("attention_mask") if input_ids is not None else tokens
            position_ids = change(_rows(position_ids, tokens), given)
            return forward(input_ids=input_ids, position_ids=position_ids, **kwargs)

        inner.forward = other

    def frequencies(self, change: Callable[..., Tensor], *drawn: float) -> None:
        """Every buffer of inverse frequencies, those that a dynamic module goes back to as well."""
        self.style = "buffer edited"
        for name, buffer in self.rotary.named_buffers():
            if "inv_freq" in name:
                buffer.copy_(change(buffer, *drawn))


def _rotates(module: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and any(name in code.co_names for name in FUNCTIONS)


def _rows(position_ids: Tensor, x: Tensor) -> Tensor:
    return position_ids.expand(x.shape[0], -1)
