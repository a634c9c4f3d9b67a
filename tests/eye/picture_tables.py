"""The tables that models of pictures really turn by, taken where they make them, and what was seen beside them.

The builders in the outside data make the models (`builders.py`, whose ``HOOK`` says where tables come out, and how).
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch
from torch import Tensor

from found_data import found_data
from phasor.eye.sites import Side

Rows = tuple[Tensor, tuple[tuple[int, int], ...]]  # complex [rows, heads or 1, pairs], and the channels of each pair


@cache
def builders() -> Any:
    """The module of the outside data; None without it."""
    data = found_data()
    if data is None or not (data / "pictures" / "builders.py").exists():
        return None
    sys.path.insert(0, str(data / "pictures"))
    try:
        return importlib.import_module("builders")
    finally:
        sys.path.pop(0)


def with_tables(name: str, model: Any, inputs: dict[str, Any], run: Callable[[], Any]) -> tuple[Any, list[Rows]]:
    """What ``run`` returns, and every table that the model made meanwhile."""
    got: list[tuple[str, Any]] = []

    def noting(function: Callable[..., Any], form: str) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            got.append((form, function(*args, **kwargs)))
            return got[-1][1]

        return noted

    with ExitStack() as inside:
        for where, form in builders().HOOK[name]:
            kind, _, rest = where.partition(":")
            if kind == "in":
                got.append((form, inputs[rest]))
            elif kind == "fn":
                module, _, path = rest.partition(":")
                owner, _, function = path.rpartition(".")
                holder = importlib.import_module(module)
                holder = getattr(holder, owner) if owner else holder
                old = getattr(holder, function)
                setattr(holder, function, noting(old, form))
                inside.callback(setattr, holder, function, old)
            else:
                part = model.get_submodule(where)
                hook = part.register_forward_hook(lambda _, __, out, form=form: got.append((form, out)))
                inside.callback(hook.remove)
                for method in ("get_embed", "get_batch_embeds"):  # timm asks for tables by name
                    if hasattr(part, method):
                        setattr(part, method, noting(getattr(part, method), form))
                        inside.callback(delattr, part, method)
        result = run()
    heads = 2 if name.startswith("ltx") else 1  # one table for the channels of all heads
    return result, [rows for form, out in got for rows in _rows(form, out, heads, name)]


def _rows(form: str, out: Any, heads: int, name: str) -> Iterator[Rows]:
    tables = [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in _leaves(out)]
    if form == "allegro":
        yield _thirds(out)
    elif form == "cis":
        for t in tables:
            yield t.reshape(-1, 1, t.shape[-1]), _neighbours(t.shape[-1])
    elif form == "mat":
        for t in tables:
            t = t.reshape(-1, t.shape[-3], 2, 2)
            yield torch.complex(t[..., 0, 0], t[..., 1, 0])[:, None], _neighbours(t.shape[1])
    elif form.startswith("cat"):
        for t in tables:
            sin, cos = t.chunk(2, -1)
            half = sin.shape[-1] // 2
            some = slice(0, None, 2) if form == "cat" else slice(half)
            turn = torch.complex(cos[..., some], sin[..., some])
            pairs = _neighbours(half) if form == "cat" else _halves(half)
            for layer in turn.reshape(-1, *turn.shape[-3:]) if turn.ndim > 3 else [turn]:
                yield (layer[:, None] if layer.ndim == 2 else layer.transpose(0, 1)), pairs
    else:
        for cos, sin in zip(tables[0::2], tables[1::2], strict=True):
            if form == "once":
                turn = torch.complex(cos, sin)
                by_token = turn if name == "mochi" else turn[0].transpose(0, 1)
                half = by_token.shape[-1]
                yield by_token, _neighbours(half) if name == "mochi" else _halves(half)
                continue
            cos, sin = (torch.unflatten(t.reshape(-1, t.shape[-1]), -1, (heads, -1)) for t in (cos, sin))
            half = cos.shape[-1] // 2
            some = slice(0, None, 2) if form == "pairs" else slice(half)
            yield (
                torch.complex(cos[..., some], sin[..., some]),
                _neighbours(half) if form == "pairs" else _halves(half),
            )


def _thirds(out: Any) -> Rows:
    parts = []
    for (cos, sin), at in zip(*out, strict=True):
        cos, sin = (t.double()[at.reshape(-1)] for t in (cos, sin))
        parts.append(torch.complex(cos, sin)[:, : cos.shape[-1] // 2])
    each = parts[0].shape[-1]
    pairs = tuple((2 * each * a + i, 2 * each * a + each + i) for a in range(3) for i in range(each))
    return torch.cat(parts, 1)[:, None], pairs


def _leaves(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    for inner in value if isinstance(value, list | tuple) else ():
        yield from _leaves(inner)


def _neighbours(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((2 * i, 2 * i + 1) for i in range(count))


def _halves(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i + count) for i in range(count))


def is_in(side: Side, tables: list[Rows]) -> bool:
    """Whether each token of a side turns by a row of one table, to the bit; some stand still, and padding is 0."""
    return any(
        _turns_by(side, pairs, [rows for rows, its in tables if its == pairs]) for pairs in {p for _, p in tables}
    )


def _turns_by(side: Side, pairs: tuple[tuple[int, int], ...], tables: list[Tensor]) -> bool:
    seen = side.operator
    assert seen is not None
    turn = seen.of_pairs(pairs, pairs)
    if turn is None or not set(seen.pairs) <= set(pairs):
        return False
    turn = (turn / seen.factor).permute(2, 0, 1)  # [tokens, heads, pairs]
    heads = turn.shape[1]
    rows = [table.expand(-1, heads, -1) for table in tables if table.shape[1] in (1, heads)]
    if not rows:
        return False
    still = torch.ones_like(rows[0][:1])
    known = torch.view_as_real(torch.cat((*rows, still, 0 * still))).float()
    mine = torch.view_as_real(turn).float()
    return all(bool((known == token).flatten(1).all(1).any()) for token in mine)
