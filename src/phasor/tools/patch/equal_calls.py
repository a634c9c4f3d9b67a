"""Which of phasor's calls equals a function of a model, bit for bit: each way to rotate is tried on its arguments.

The arguments are random, under the names that a function of transformers has, or like those that a function was seen
to be given.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ...rotary.spec import RotarySpec
from ...support.findings import Difference
from .arguments import TOKENS, Given, Path, Turned, at, joined, told
from .compare import INCOMPARABLE, LENGTHS, Best, best_of, difference_of, largest, positions_for, shaped
from .functions import Holder
from .rotate_function import CALLS, Order, RotateFunction, parameters_of, ways
from .tables import SelfNumberedModule, Tables, layout_of_table

Arguments = dict[str, Any]
Way = tuple[Given, RotateFunction]
FEW = (1, 5, 33)  # tokens
FARTHEST = 131_072
MOST_CALLS = 4  # one with q, one with k
NOT_TAKEN = (RuntimeError, IndexError, TypeError, ValueError, AssertionError)  # of arguments of other shapes


def taken(run: Callable, cases: Iterable[Arguments], moved: bool = False) -> Iterator[tuple[Arguments, Any]]:
    """The arguments that a function takes, and its results, which have the shapes of heads that were given.

    Else they were broadcast against a wrong axis; axes of results may be ``moved``.
    """
    for arguments in cases:
        try:
            theirs = run(**tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, arguments))
        except NOT_TAKEN:
            continue
        shapes = {x.shape for x in tree_leaves(arguments) if isinstance(x, Tensor)}
        if moved or all(x.shape in shapes for x in tree_leaves(theirs) if isinstance(x, Tensor)):
            yield arguments, theirs


def agreeing(tried: Iterable[tuple[Any, Callable]], cases: Iterable[tuple[Arguments, Any]]) -> Best:
    """Out of ``(way, stand-in)`` the way that agrees best with a function on all arguments that it takes."""
    known = list(cases)
    return best_of((way, largest([beside(ours, *case) for case in known] or [INCOMPARABLE])) for way, ours in tried)


def beside(ours: Callable, arguments: Arguments, theirs: Any) -> Difference:
    """How far a stand-in is from a result; one that refuses what the model's function takes is not comparable."""
    try:
        return difference_of(theirs, ours(**arguments))
    except (ValueError, RuntimeError, IndexError):
        return INCOMPARABLE


# Of a function whose parameters are known by their names.


def compare_function(
    function: Callable,
    tables: Sequence[Tables],
    specs: Sequence[RotarySpec],
    dtypes: Sequence[torch.dtype],
    kernel: str = "auto",
) -> Best:
    """The `RotateFunction` out of ``specs`` that agrees best with the model's own, on random q and k, by all tables."""
    parameters, default = parameters_of(function)
    if parameters not in CALLS:
        return None, INCOMPARABLE
    orders: tuple[Order, ...] = ("bhsd",) if "unsqueeze_dim" in parameters else ("bhsd", "bshd", None)
    turning = dict.fromkeys(  # a function may be given the rotated channels alone, wherever they stand in the head
        (replace(spec.layout, trailing=trailing), spec.reverse, spec.second is not None)
        for spec in specs
        for trailing in dict.fromkeys((spec.trailing, False))
    )
    form = tables[0].form
    found = [
        way
        for layout, reverse, sheared in turning
        for way in ways(layout, form, (reverse,), parameters, default, orders, sheared=sheared, kernel=kernel)
    ]
    found += [replace(way, latest=True) for way in found if "q" in parameters]
    return agreeing(((way, way.stand_in()) for way in found), taken(function, _by_name(parameters, tables, dtypes)))


def refusal(
    function: Callable, way: RotateFunction, tables: Sequence[Tables], dtypes: Sequence[torch.dtype], kernel: str
) -> str:
    """Why that kernel cannot do what ``way``, which agrees with the function, does by another; empty if it can."""
    named = replace(way, kernel=kernel).stand_in()
    for arguments, _ in taken(function, _by_name(way.parameters, tables, dtypes)):
        try:
            named(**arguments)
        except ValueError as error:
            return str(error)
    return ""


def _by_name(
    parameters: Sequence[str], several: Sequence[Tables], dtypes: Sequence[torch.dtype]
) -> Iterator[Arguments]:
    """Random heads, whole and the channels alone that rotate, and tables at near and far positions."""
    random = torch.Generator().manual_seed(0)
    for tables in several:
        spec, formed = tables.spec, replace(tables, spec=tables.spec.replace(learned=False))
        kinds = [(d, d) for d in dtypes] + ([(torch.bfloat16, torch.float32)] if tables.rounded else [])
        shapes = [one for positions in positions_for(spec, torch.device("cpu")) for one in shaped(spec, positions)]
        places = [place for place, last in shapes if last == tables.coordinates_last]
        for place, width, (dtype, of_tables) in product(places, dict.fromkeys((spec.head_dim, 2 * spec.pairs)), kinds):
            cos, sin = formed.at(torch.zeros(1, dtype=of_tables), place)
            given = {"cos": cos, "sin": sin, "position_ids": place}
            yield from _with_heads(parameters, given, width, dtype, random)


def _with_heads(
    parameters: Sequence[str], given: Arguments, width: int, dtype: torch.dtype, random: torch.Generator
) -> Iterator[Arguments]:
    """Tables and heads of both orders, as far as such a function is ``given`` tables with these axes."""
    *batch, tokens, _ = given["cos"].shape
    names = [n.removesuffix("=None") for n in parameters if n not in ("unsqueeze_dim", "**kwargs")]
    if len(batch) > ("v" not in names) or (not batch and "sinusoidal_pos" in names):
        return
    if "sinusoidal_pos" in names:
        given["sinusoidal_pos"] = torch.cat((given["sin"], given["cos"]), dim=-1).unsqueeze(1)
    if "v" in names:  # tables of all positions, and heads with a batch of their own
        batch, given["position_ids"] = [1], torch.arange(tokens)[None]
    elif "q" in names and "position_ids" in names:
        names.remove("position_ids")  # a leftover that nothing reads
    for order in ("bhsd", "bshd"):
        values: Arguments = {"unsqueeze_dim": len(batch) + (order == "bshd")} if "unsqueeze_dim" in parameters else {}
        for name in names:
            heads = 2 if name == "k" else 3
            shape = (*batch, heads, tokens, width) if order == "bhsd" else (*batch, tokens, heads, width)
            values[name] = given[name] if name in given else torch.randn(shape, generator=random).to(dtype)
        yield values
        if "q" in names and order == "bhsd":  # the last tokens ask only; most functions cannot
            yield values | {"q": values["q"][..., 2:, :]}


def compare_method(
    module: Any, method: Callable, tables: Sequence[Tables], dtypes: Sequence[torch.dtype], kernel: str = "auto"
) -> Best:
    """The `RotateFunction` that agrees best with a method that rotates hidden states, by one of ``tables``."""
    parameters, default = parameters_of(method)
    random = torch.Generator().manual_seed(0)

    def cases(one: Tables) -> Iterator[Arguments]:
        for length, dtype in product(LENGTHS, dtypes):
            x = torch.randn(2, length, module.num_heads * module.head_size, generator=random).to(dtype)
            yield dict(zip(parameters[1:], (x, SelfNumberedModule(one, "frames").at(x, (1, 1))), strict=True))

    def compared(one: Tables) -> Best:
        layout, reverse = one.spec.layout, (one.spec.reverse,)
        found = ways(layout, one.form, reverse, parameters, default, ("bshd",), kernel=kernel)
        return agreeing(
            ((way, partial(way.stand_in(), module)) for way in found), taken(partial(method, module), cases(one))
        )

    return best_of(map(compared, tables))


# Of a function that was seen to rotate.


def best_way(
    holder: Holder, seen: Sequence[Turned], dtypes: Sequence[torch.dtype], kernel: str
) -> tuple[Way | None, Difference] | str:
    """The way to rotate that agrees best with a function, by what may have been seen; or why there is none to try."""
    several = [(told(call, one), one.layout) for one in seen for call in holder.calls[:MOST_CALLS]]
    known, layout = next((one for one in several if not isinstance(one[0], str)), several[0])
    if isinstance(known, str):
        return known
    layouts = dict.fromkeys((layout, replace(layout, trailing=False)))
    tried = [(given, way) for given, form in known for one in layouts for way in ways(one, form, kernel=kernel)]
    on_calls = [(way, does(holder, way)) for way in tried]
    equal = [way for way, difference in on_calls if difference.exact]
    if not equal:
        return best_of(on_calls)
    return best_of(
        agreeing([(way, _ours(holder, way))], taken(holder.run, _like_seen(way, holder, dtypes), way[0].transposed))
        for way in equal
    )


def _ours(holder: Holder, way: Way) -> Callable:
    return way[0].stand_in(way[1], _no_other, False)


def _no_other(*args: Any, **kwargs: Any) -> None:
    """In place of the model's own function, so that a stand-in is not compared with what it calls."""


def does(holder: Holder, way: Way) -> Difference:
    """How far a way is from what a function gave in the calls that were seen."""
    ours = _ours(holder, way)
    return largest(beside(ours, call.arguments, call.result) for call in holder.calls)


def _like_seen(way: Way, holder: Holder, dtypes: Sequence[torch.dtype]) -> Iterator[Arguments]:
    """Arguments like those of a call, of other lengths, batches and dtypes."""
    given, seen, random = way[0], holder.calls[0].arguments, torch.Generator().manual_seed(0)
    kinds = [(d, d) for d in dtypes] + [(torch.bfloat16, torch.float32)]
    heads = [at(seen, path) for path in given.heads]
    several = next(n for n in (2, 3, 5) if all(n not in x.shape for x in heads))
    for length, (dtype, of_tables), (batch, rows) in product(FEW, kinds, ((1, 1), (several, 1), (several, several))):
        new = dict(zip(given.heads, (_head(x, given, length, batch, random).to(dtype) for x in heads), strict=True))
        new |= _tables(way, seen, length, rows, of_tables, random)
        yield {name: _put(value, (name,), new) for name, value in seen.items()}


def _head(x: Tensor, given: Given, length: int, batch: int, random: torch.Generator) -> Tensor:
    shape = list(x.shape)
    shape[TOKENS[given.order]] = length
    if given.order != "thd":
        shape[given.order.index("b") if "b" in given.order else 0] *= batch
    return torch.randn(shape, generator=random)


def _tables(
    way: Way, seen: Arguments, length: int, batch: int, dtype: torch.dtype, random: torch.Generator
) -> dict[Path, Tensor]:
    given, function = way
    like = at(seen, given.by[0])
    if given.spec is not None:
        positions = torch.randint(0, FARTHEST, (*like.shape[:-1], length), generator=random)
        return {given.by[0]: positions.to(like.dtype)}
    chosen = dict[Path, Tensor]()
    if given.take is not None:
        if given.take != "first":
            rows = at(seen, given.take)
            high = like.shape[given.tokens]
            chosen[given.take] = torch.randint(0, high, (*rows.shape[:-1], length), generator=random).to(rows.dtype)
        length = max(like.shape[given.tokens], length)
    pairs = like.shape[-1] if function.form == "half" else like.shape[-1] // 2
    shape = list(like.shape)
    shape[given.tokens] = length
    if -like.ndim not in (given.tokens, given.own):
        shape[0] = batch
    angles = torch.rand(*shape[:-1], pairs, generator=random) * 6
    if function.form != "half":
        angles = layout_of_table(2 * pairs, function.form, function.layout.blocks).join(angles, angles)
    dtype = like.dtype if given.by[0][-1] == "real" else dtype  # a complex table has no half precision
    formed = (angles,) if len(given.by) == 1 else (angles.cos(), angles.sin())
    return chosen | {path: table.to(dtype) for path, table in zip(given.by, formed, strict=True)}


def _put(value: Any, path: Path, new: dict[Path, Tensor]) -> Any:
    """A value with new tensors at these paths inside it."""
    if path in new:
        return new[path]
    inside = [p for p in new if p[: len(path)] == path]
    if not inside:
        return value
    if isinstance(value, Tensor) and isinstance(inside[0][-1], str):
        return joined({p[-1]: new[p] for p in inside})
    parts = [_put(inner, (*path, i), new) for i, inner in enumerate(value)]
    return torch.stack(parts) if isinstance(value, Tensor) else type(value)(parts)
