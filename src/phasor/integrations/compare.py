"""The model's own code and phasor, side by side on the same tensors: only what agrees is replaced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ..spec import RotarySpec
from .agreement import NONE, Agreement, worst
from .calls import CALLS, Order
from .counted import LENGTHS, CountedModule
from .tables import Form, Tables, trained
from .turning import Turning

NEAR_AND_FAR = (*range(8), 100, 1000, 4095, 32_767, 131_071)
HEADS = {"k": 2, "xk": 2, "key": 2}

Found = tuple[Any, Agreement]  # what agrees best (None if nothing could be compared), and how well


def positions_for(spec: RotarySpec, device: torch.device) -> Iterator[Tensor]:
    """``[axes, 1, S]``: all of ``NEAR_AND_FAR``; those inside its length first for a spec that depends on length.

    Beyond it, what a module with dynamic NTK does depends on its earlier calls: that is not compared.
    """
    near_far = torch.tensor(NEAR_AND_FAR, device=device)
    if spec.length_dependent:
        assert spec.scaling is not None and spec.scaling.trained_length is not None
        yield near_far[near_far < spec.scaling.trained_length].expand(spec.axes.count, 1, -1)
        if not spec.scaling.two_regimes:
            return
    if spec.coordinates == "real":
        near_far = near_far / near_far.numel() / 7
    yield torch.stack([near_far.roll(axis) for axis in range(spec.axes.count)]).unsqueeze(1)


def _shaped(spec: RotarySpec, positions: Tensor) -> list[tuple[Tensor, bool]]:
    """The shapes in which modules take positions, and whether the coordinates come last."""
    if spec.axes.count == 1:
        return [(positions[0], False), (positions[0, 0], False)]
    last = positions.movedim(0, -1)
    return [(positions, False), (last, True), (last[0], True)]


def compare_tables(
    module: nn.Module, layer_type: str | None, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> Found:
    """The `Tables` out of ``specs`` that agree best with what the module itself returns."""
    return _best(_tables_compared(module, layer_type, specs, dtypes))


def _best(candidates: Iterable[Found]) -> Found:
    """The one that agrees best; after one that agrees bit for bit no other is looked at."""
    best: Found = (None, NONE)
    for found in candidates:
        if found[1].steps < best[1].steps:
            best = found
        if found[1].difference == 0:
            break
    return best


def _tables_compared(
    module: nn.Module, layer_type: str | None, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> Iterator[Found]:
    for spec in specs:
        device = next((b.device for b in module.buffers()), torch.device("cpu"))
        log_scale = trained(module, spec)
        batches = [_shaped(spec, positions) for positions in positions_for(spec, device)]
        for shaped in zip(*batches, strict=True):
            theirs = _theirs(module, layer_type, [p for p, _ in shaped], dtypes)
            for tables in _forms(spec, theirs, shaped[0][1]):
                yield tables, worst(Agreement.of(t, tables.at(x, p, log_scale)) for x, p, t in theirs)


def _theirs(
    module: nn.Module, layer_type: str | None, positions: Sequence[Tensor], dtypes: Sequence[torch.dtype]
) -> list[tuple[Tensor, Tensor, Any]]:
    """``(x, positions, result)`` of the module, as far as it takes positions of this shape."""
    more = {} if layer_type is None else {"layer_type": layer_type}
    done = []
    for dtype in dtypes:
        for p in positions:
            x = torch.zeros(1, p.shape[-1], 1, dtype=dtype, device=p.device)
            try:
                done.append((x, p, module.forward(x, p, **more)))
            except Exception:
                return []
    return done


def _forms(spec: RotarySpec, theirs: list[tuple[Tensor, Tensor, Any]], last: bool) -> Iterator[Tables]:
    if not theirs:
        return
    _, positions, result = theirs[0]
    if isinstance(result, Tensor) and result.is_complex():
        yield Tables(spec, "complex", False, last)
    elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor):
        rounded = all(r[0].dtype == x.dtype for x, _, r in theirs)
        forms: list[Form] = ["half"] if result[0].shape[-1] == spec.pairs else ["doubled", "repeated"]
        if spec.blocks > 1:
            forms.append("blocks")
        led = result[0].ndim - 1 > positions.ndim - last
        yield from (Tables(spec, form, rounded, last, led) for form in forms)


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
    return _best((turning, _turning_compared(function, turning, tables, dtypes)) for turning in turnings)


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
        for shaped in [p for p, last in _shaped(tables.spec, positions) if last == tables.coordinates_last]:
            for width, dtype in product(widths, dtypes):
                for given in _arguments(turning, tables, shaped, width, dtype, random):
                    try:
                        theirs = function(*given[0], **given[1])
                    except (RuntimeError, IndexError, TypeError):  # not the shapes it takes
                        continue
                    if _fits(given, theirs):
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
    return _best(found)


def _fits(given: Given, theirs: Any) -> bool:
    """Whether a result has the shapes of heads that were given; else they were broadcast against a wrong axis."""
    shapes = {x.shape for x in (*given[0], *given[1].values()) if isinstance(x, Tensor)}
    results = theirs if isinstance(theirs, tuple | list) else (theirs,)
    return all(x.shape in shapes for x in results if isinstance(x, Tensor))


def _arguments(
    turning: Turning, tables: Tables, positions: Tensor, width: int, dtype: torch.dtype, random: torch.Generator
) -> Iterator[Given]:
    """Random heads and the tables at ``positions`` under the names of the function's parameters."""
    formed = replace(tables, spec=tables.spec.replace(learned=False)).at(torch.zeros(1, dtype=dtype), positions)
    cos, sin = formed if isinstance(formed, tuple) else (formed, formed)
    *batch, tokens, _ = cos.shape
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
