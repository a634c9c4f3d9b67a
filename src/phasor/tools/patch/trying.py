"""A stand-in beside the function that was seen to rotate: on the calls that were seen, and on random arguments."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ...rotary.layout import Layout
from ...support.findings import Difference
from .arguments import TOKENS, Given, NotTold, Path, Turned, at, joined, told
from .compare import INCOMPARABLE, best_of, difference_of, fits, largest
from .functions import Holder
from .rotate_function import RotateFunction
from .tables import Form, layout_of_table

LENGTHS = (1, 5, 33)
FARTHEST = 131_072
MOST_CALLS = 4  # one with q, one with k
ROUNDINGS: tuple[dict[str, bool], ...] = ({"promoted": True}, {}, {"widened": True})
Way = tuple[Given, RotateFunction]


def best_way(
    holder: Holder, seen: Sequence[Turned], dtypes: Sequence[torch.dtype], kernel: str
) -> tuple[Way | None, Difference] | NotTold:
    """The way to rotate that agrees best with a function, by what may have been seen; or why there is none to try."""
    several = [(told(call, one), one.layout) for one in seen for call in holder.calls[:MOST_CALLS]]
    ways, layout = next((one for one in several if not isinstance(one[0], NotTold)), several[0])
    if isinstance(ways, NotTold):
        return ways
    tried = [(given, function) for given, form in ways for function in _functions(layout, form, kernel)]
    on_calls = [(way, does(holder, way)) for way in tried]
    equal = [way for way, difference in on_calls if difference.exact]
    if not equal:
        return best_of(on_calls)
    return best_of((way, _on_random(holder, way, dtypes)) for way in equal)


def _functions(layout: Layout, form: Form, kernel: str) -> Iterator[RotateFunction]:
    layouts = dict.fromkeys((layout, replace(layout, trailing=False)))
    for one, backwards, rounding in product(layouts, (False, True), ROUNDINGS):
        yield RotateFunction((), 1, None, form, one, backwards=backwards, kernel=kernel, **rounding)


def _ours(holder: Holder, way: Way) -> Any:
    return way[0].stand_in(way[1], _no_other, False)


def _no_other(*args: Any, **kwargs: Any) -> None:
    """In place of the model's own function, so that a stand-in is not compared with what it calls."""


def does(holder: Holder, way: Way) -> Difference:
    """How far a way is from what a function gave in the calls that were seen."""
    ours = _ours(holder, way)
    return largest(_beside(ours, call.arguments, call.result) for call in holder.calls)


def _on_random(holder: Holder, way: Way, dtypes: Sequence[torch.dtype]) -> Difference:
    ours, differences = _ours(holder, way), []
    for arguments in random_arguments(way, holder.calls[0].arguments, dtypes):
        try:
            theirs = holder.run(tree_map(_clone, arguments))
        except (RuntimeError, IndexError, TypeError, ValueError, AssertionError):  # not the shapes it takes
            continue
        if way[0].transposed or fits((tuple(tree_leaves(arguments)), {}), theirs):
            differences.append(_beside(ours, arguments, theirs))
    return largest(differences or [INCOMPARABLE])


def _beside(ours: Any, arguments: dict[str, Any], theirs: Any) -> Difference:
    try:
        return difference_of(theirs, ours(**arguments))
    except (ValueError, RuntimeError, IndexError):  # phasor refuses what the model's function takes
        return INCOMPARABLE


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def random_arguments(way: Way, seen: dict[str, Any], dtypes: Sequence[torch.dtype]) -> Iterator[dict[str, Any]]:
    """Arguments like those of a call, of other lengths, batches and dtypes."""
    given, random = way[0], torch.Generator().manual_seed(0)
    kinds = [(d, d) for d in dtypes] + [(torch.bfloat16, torch.float32)]
    heads = [at(seen, path) for path in given.heads]
    batch = next(n for n in (2, 3, 5) if all(n not in x.shape for x in heads))
    for length, (dtype, of_tables), several, tables_too in product(LENGTHS, kinds, (1, batch), (False, True)):
        if tables_too and several == 1:
            continue
        new = dict(zip(given.heads, (_head(x, given, length, several, random).to(dtype) for x in heads), strict=True))
        new |= _tables(way, seen, length, several if tables_too else 1, of_tables, random)
        yield {name: _put(value, (name,), new) for name, value in seen.items()}


def _head(x: Tensor, given: Given, length: int, batch: int, random: torch.Generator) -> Tensor:
    shape = list(x.shape)
    shape[TOKENS[given.order]] = length
    if given.order != "thd":
        shape[given.order.index("b") if "b" in given.order else 0] *= batch
    return torch.randn(shape, generator=random)


def _tables(
    way: Way, seen: dict[str, Any], length: int, batch: int, dtype: torch.dtype, random: torch.Generator
) -> dict[Path, Tensor]:
    given, function = way
    if given.spec is not None:
        like = at(seen, given.by[0])
        positions = torch.randint(0, FARTHEST, (*like.shape[:-1], length), generator=random).to(like.dtype)
        return {given.by[0]: positions}
    like, chosen = at(seen, given.by[0]), dict[Path, Tensor]()
    if given.take is not None:
        if given.take != "first":
            rows = at(seen, given.take)
            rows = torch.randint(0, like.shape[given.tokens], (*rows.shape[:-1], length), generator=random).to(
                rows.dtype
            )
            chosen[given.take] = rows
        length = max(like.shape[given.tokens], length)
    pairs = like.shape[-1] if function.form == "half" else like.shape[-1] // 2
    shape = list(like.shape)
    shape[given.tokens] = length
    if -like.ndim not in (given.tokens, given.own):
        shape[0] = batch
    angles = torch.rand(*shape[:-1], pairs, generator=random) * 6
    if function.form != "half":
        angles = layout_of_table(2 * pairs, function.form, function.layout.blocks).join(angles, angles)
    if len(given.by) == 1:
        return chosen | {given.by[0]: angles.to(dtype)}
    return chosen | {path: table.to(dtype) for path, table in zip(given.by, (angles.cos(), angles.sin()), strict=True)}


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
