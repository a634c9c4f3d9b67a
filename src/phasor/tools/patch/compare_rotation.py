"""The functions and methods with which a model turns q and k, beside phasor on random heads: which turning agrees."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ...rotary.spec import RotarySpec
from .agreement import NONE, Agreement, worst
from .compare import Found, best_of, positions_for, shaped
from .rotate_function import Turning
from .self_numbered import LENGTHS, CountedModule
from .signatures import CALLS, Order
from .tables import Form, Tables

HEADS = {"k": 2, "xk": 2, "key": 2}


def parameters_of(function: Callable) -> tuple[tuple[str, ...], int]:
    """The parameters of a function that turns, as `CALLS` lists them, and the default of its ``unsqueeze_dim``."""
    named, default = [], 1
    for p in signature(function).parameters.values():
        if p.name == "unsqueeze_dim":
            default = p.default
        left_out = p.default is None and p.name in ("k", "cos", "sin", "value_layer")
        named.append(f"**{p.name}" if p.kind is Parameter.VAR_KEYWORD else f"{p.name}=None" if left_out else p.name)
    return tuple(named), default


def compare_turning(
    function: Callable,
    tables: Sequence[Tables],
    specs: Sequence[RotarySpec],
    dtypes: Sequence[torch.dtype],
    kernel: str = "auto",
) -> Found:
    """The `Turning` of one of ``specs`` that agrees best with the model's function on random q and k, by all tables."""
    parameters, default = parameters_of(function)
    if parameters not in CALLS:
        return None, NONE
    orders: tuple[Order, ...] = ("bhsd",) if "unsqueeze_dim" in parameters else ("bhsd", "bshd", None)
    turnings = _turnings(specs, parameters, default, orders, tables[0].form, kernel)
    return best_of((turning, _turning_compared(function, turning, tables, dtypes)) for turning in turnings)


def _turning_compared(
    function: Callable, turning: Turning, tables: Sequence[Tables], dtypes: Sequence[torch.dtype]
) -> Agreement:
    ours = turning.function()
    cases = [case for t in tables for case in _cases(function, turning, t, dtypes)]
    return worst([Agreement.of(theirs, _called(ours, given)) for given, theirs in cases] or [NONE])


def _turnings(
    specs: Sequence[RotarySpec],
    parameters: tuple[str, ...],
    default: int,
    orders: tuple[Order, ...],
    form: Form,
    kernel: str,
) -> Iterator[Turning]:
    """Each different way once; a function may be given the turned channels alone, wherever they stand in the head."""
    ways = dict.fromkeys(
        Turning.of(spec.replace(trailing=trailing), parameters, default, order, form, kernel)
        for spec in specs
        for trailing in dict.fromkeys((spec.trailing, False))
        for order in orders
    )
    yield from ways
    yield from (replace(way, latest=True) for way in ways if "q" in parameters)
    yield from (replace(way, promoted=False) for way in ways if way.promoted)


Given = tuple[tuple[Any, ...], dict[str, Any]]


def _called(function: Callable, given: Given) -> Any:
    try:
        return function(*given[0], **given[1])
    except ValueError:  # phasor refuses what the model's function takes
        return None


def _cases(
    function: Callable, turning: Turning, tables: Tables, dtypes: Sequence[torch.dtype]
) -> Iterator[tuple[Given, Any]]:
    """Arguments that the model's function takes, and its results: whole heads, and only the channels that turn."""
    random = torch.Generator().manual_seed(0)
    widths = dict.fromkeys((tables.spec.head_dim, 2 * tables.spec.pairs))
    for positions in positions_for(tables.spec, torch.device("cpu")):
        for at in [p for p, last in shaped(tables.spec, positions) if last == tables.coordinates_last]:
            for width, (dtype, formed) in product(widths, _pairs_of_dtypes(tables, dtypes)):
                for given in arguments(turning, tables, at, width, dtype, formed, random):
                    try:
                        theirs = function(*given[0], **given[1])
                    except (RuntimeError, IndexError, TypeError, ValueError):  # not the shapes it takes
                        continue
                    if fits(given, theirs):
                        yield given, theirs


def compare_method(
    module: Any,
    function: Callable,
    tables: Sequence[Tables],
    dtypes: Sequence[torch.dtype],
    kernel: str = "auto",
) -> Found:
    """The `Turning` that agrees best with a method that turns the hidden states of a module, by one of ``tables``."""
    parameters, default = parameters_of(function)
    random = torch.Generator().manual_seed(0)
    found = []
    for t in tables:
        turning = Turning.of(t.spec, parameters, default, "bshd", t.form, kernel)
        ours, agreements = turning.function(), []
        for length, dtype in product(LENGTHS, dtypes):
            x = torch.randn(2, length, module.num_heads * module.head_size, generator=random).to(dtype)
            given = x, CountedModule(t, "frames").at(x, (1, 1))
            agreements.append(Agreement.of(function(module, *given), ours(module, *given)))
        found.append((turning, worst(agreements)))
    return best_of(found)


def fits(given: Given, theirs: Any) -> bool:
    """Whether a result has the shapes of heads that were given; else they were broadcast against a wrong axis."""
    shapes = {x.shape for x in (*given[0], *given[1].values()) if isinstance(x, Tensor)}
    results = theirs if isinstance(theirs, tuple | list) else (theirs,)
    return all(x.shape in shapes for x in results if isinstance(x, Tensor))


def _pairs_of_dtypes(tables: Tables, dtypes: Sequence[torch.dtype]) -> list[tuple[torch.dtype, torch.dtype]]:
    """Of heads and of the activations that the tables follow: the same, and tables wider than the heads."""
    return [(d, d) for d in dtypes] + ([(torch.bfloat16, torch.float32)] if tables.rounded else [])


def arguments(
    turning: Turning,
    tables: Tables,
    positions: Tensor,
    width: int,
    dtype: torch.dtype,
    formed_in: torch.dtype,
    random: torch.Generator,
) -> Iterator[Given]:
    """Random heads and the tables at ``positions`` under the names of the function's parameters."""
    formed = replace(tables, spec=tables.spec.replace(learned=False)).at(torch.zeros(1, dtype=formed_in), positions)
    cos, sin = formed if isinstance(formed, tuple) else (formed, formed)
    *batch, tokens, _ = cos.shape
    if len(batch) > 1:  # of positions with one more axis than such a module is given
        return
    values: dict[str, Any] = {
        "cos": cos,
        "sin": sin,
        "freqs_cis": formed,
        "freqs_ci": formed,
        "position_ids": positions,
    }
    if "sinusoidal_pos" in turning.parameters:
        if not batch:  # such a table always has four dimensions
            return
        values["sinusoidal_pos"] = torch.cat((sin, cos), dim=-1).unsqueeze(1)
    of_tables = set(values)
    names = [n.removesuffix("=None") for n in turning.parameters if n not in ("unsqueeze_dim", "**kwargs")]
    if "v" in names:  # tables of all positions, and heads with a batch of their own
        if batch:
            return
        batch, values["position_ids"] = [1], torch.arange(tokens)[None]
    elif "q" in names and "position_ids" in names:
        names.remove("position_ids")  # a leftover that nothing reads
    selects = "unsqueeze_dim" in turning.parameters
    for order in ("bhsd", "bshd"):
        for name in names:
            if name not in of_tables:
                heads = HEADS.get(name, 3)
                shape = (heads, tokens) if order == "bhsd" else (tokens, heads)
                values[name] = torch.randn(*batch, *shape, width, generator=random).to(dtype)
        more = {"unsqueeze_dim": len(batch) + (order == "bshd")} if selects else {}
        yield tuple(values[n] for n in names), more
        if "q" in names and order == "bhsd":  # the last tokens ask only; most functions cannot
            yield tuple(values[n][..., 2:, :] if n == "q" else values[n] for n in names), more
